package main

import (
	"context"

	"github.com/goucx/goucx/ucp"
)

// byPut writes each block into the memory of the right neighbor, which only polls a counter. The
// memory:
//
//	0 number of blocks that arrived u64 | 8 laps that the right neighbor has checked u64 | 16 a block for each step
func byPut(ctx context.Context, r *ring) error {
	const arrived, checked, blocks = 0, 8, 16
	mem, err := r.x.Allocate(blocks+r.Size*r.block, ucp.MemConfig{})
	if err != nil {
		return err
	}
	keys, err := r.Allgather(ctx, mem.Key())
	if err != nil {
		return err
	}
	rightKey, err := r.right.UnpackKey(keys[(r.Rank+1)%r.Size])
	if err != nil {
		return err
	}
	leftKey, err := r.left.UnpackKey(keys[r.source(1)])
	if err != nil {
		return err
	}
	at := func(step int) int { return blocks + step*r.block }
	bytes := mem.Bytes()
	count := uint64(0)
	for lap := range r.laps {
		// The right neighbor may still read the blocks of the last lap.
		if err := r.waitUntil(ctx, func() bool { return mem.Load64(checked) >= uint64(lap) }); err != nil {
			return err
		}
		fill(bytes[at(0):at(1)], r.Rank, lap)
		for step := 1; step < r.Size; step++ {
			rightKey.Put(bytes[at(step-1):at(step)], uint64(at(step)))
			r.right.Fence() // the block before its count
			count++
			rightKey.PutUint64(count, arrived)
			if err := r.waitUntil(ctx, func() bool { return mem.Load64(arrived) >= count }); err != nil {
				return err
			}
			if err := check(bytes[at(step):at(step+1)], r.source(step), lap); err != nil {
				return err
			}
		}
		if err := r.right.Flush().Wait(ctx); err != nil { // also reports a failed put
			return err
		}
		leftKey.PutUint64(uint64(lap+1), checked)
	}
	return r.left.Flush().Wait(ctx)
}
