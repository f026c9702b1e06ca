package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucp"
)

// part is the columns of a strip that one goroutine writes to the neighbors, and computes.
type part struct {
	*strip
	from, to int
	thread   *ucp.Thread
	peer     [2]ucp.Endpoint
	key      [2]*ucp.RemoteKey
	counter  [2]ucp.Atomic[uint64]
}

// neverSent is the tag of receives that only the end of a neighbor ends.
const neverSent = 1 << 32

// newPart returns part i of n. The endpoints and keys of its Thread are those of the worker.
func (s *strip) newPart(i, n int) (*part, error) {
	thread, err := s.w.NewThread()
	if err != nil {
		return nil, err
	}
	p := &part{strip: s, from: i * columns / n, to: (i + 1) * columns / n, thread: thread}
	for side := range s.peer {
		p.peer[side], p.key[side] = s.peer[side].On(thread), s.key[side].On(thread)
		if p.counter[side], err = ucp.AtomicAt[uint64](p.key[side], uint64(8*(1-side))); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// solveByThreads computes the steps with n goroutines. The goroutines put, and add to the counters,
// without a lock; this one progresses the worker. A counter gets n for each step.
func (s *strip) solveByThreads(ctx context.Context, steps, n int) error {
	parts := make([]*part, n)
	for i := range parts {
		var err error
		if parts[i], err = s.newPart(i, n); err != nil {
			return err
		}
	}
	for _, e := range s.peer { // connects: an endpoint that only Threads use does not notice its peer's end
		s.w.TagRecv(nil, neverSent, ^ucp.Tag(0)).Tie(e).Drop()
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for step := range steps {
		encode(s.out[lower], s.grid[:columns])
		encode(s.out[upper], s.grid[(s.rows-1)*columns:])
		var writers, computers sync.WaitGroup
		var written atomic.Int64
		for _, p := range parts {
			writers.Go(func() {
				if err := p.write(ctx, step); err != nil {
					fail(err)
				}
				written.Add(1)
				s.w.Signal() // WaitUntil looks again
			})
		}
		err := s.w.WaitUntil(ctx, func() bool {
			return s.neighborErr != nil || written.Load() == int64(n) && s.arrived() >= uint64(n*(step+1))
		})
		if err = errors.Join(err, s.neighborErr); err != nil {
			fail(err) // the writers end, too
		}
		writers.Wait()
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		for _, p := range parts {
			computers.Go(func() { s.relax(step, p.from, p.to) })
		}
		computers.Wait()
		s.grid, s.next = s.next, s.grid
	}
	return nil
}

// write writes the part's columns of the outer rows into the neighbors' memory.
func (p *part) write(ctx context.Context, step int) error {
	for side := range p.peer {
		p.key[side].Put(p.out[side][8*p.from:8*p.to], uint64(row(step, 1-side)+8*p.from))
		p.peer[side].Fence() // the columns before their count
		p.counter[side].Add(1)
	}
	return p.thread.Flush().Wait(ctx) // out may be reused; a dead neighbor is reported here
}
