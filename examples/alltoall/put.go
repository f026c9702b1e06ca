package main

import (
	"context"

	"github.com/goucx/goucx/ucp"
)

// byPut writes each block to its offset in the receiver's memory and increments a counter there.
// The memory:
//
//	0 number of blocks that arrived u64 | 8 a block of each rank
func byPut(ctx context.Context, p *process) error {
	const arrived, blocks = 0, 8
	mem, err := p.x.Allocate(blocks+p.Size*p.block, ucp.MemConfig{})
	if err != nil {
		return err
	}
	keys, counters, err := p.unpack(ctx, mem.Key(), arrived)
	if err != nil {
		return err
	}
	at := func(rank int) int { return blocks + rank*p.block }
	out := p.blocks()
	for turn := range p.turns {
		for i := range keys {
			to := (p.Rank + i) % p.Size // each process begins with another peer
			fill(out[to], p.Rank, to, turn)
			keys[to].Put(out[to], uint64(at(p.Rank)))
			p.peers[to].Fence() // the block before its count
			counters[to].Add(1)
		}
		count := uint64((turn + 1) * p.Size)
		if err := p.waitUntil(ctx, func() bool { return mem.Load64(arrived) >= count }); err != nil {
			return err
		}
		for from := range p.Size {
			if err := p.check(mem.Bytes()[at(from):at(from+1)], from, turn); err != nil {
				return err
			}
		}
		if err := p.w.Flush().Wait(ctx); err != nil { // out may be reused; a failed put is reported here
			return err
		}
		if err := p.barrier(ctx, turn+1); err != nil { // all have checked: the next turn may overwrite
			return err
		}
	}
	return nil
}

// unpack exchanges keys, unpacks the keys of all processes' memory, and returns the counters in
// it.
func (p *process) unpack(ctx context.Context, mine ucp.Key, counter uint64) ([]*ucp.RemoteKey, []ucp.Atomic[uint64], error) {
	packed, err := p.Allgather(ctx, mine)
	if err != nil {
		return nil, nil, err
	}
	keys, counters := make([]*ucp.RemoteKey, p.Size), make([]ucp.Atomic[uint64], p.Size)
	for rank, k := range packed {
		if keys[rank], err = p.peers[rank].UnpackKey(k); err != nil {
			return nil, nil, err
		}
		if counters[rank], err = ucp.AtomicAt[uint64](keys[rank], counter); err != nil {
			return nil, nil, err
		}
	}
	return keys, counters, nil
}
