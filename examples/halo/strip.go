package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/goucx/goucx/examples/bootstrap"
	"github.com/goucx/goucx/ucp"
)

// The memory that neighbors write to:
//
//	0 rows that came from the lower side u64 | 8 from the upper one u64 | 64 four rows: [parity of the step][side]
const (
	columns = 512
	rowLen  = 8 * columns
	head    = 64
)

// A side is 0 towards the lower rank, 1 towards the upper.
const (
	lower = iota
	upper
)

// strip is the part of the grid of one process.
type strip struct {
	*bootstrap.Job
	w           *ucp.Worker
	mem         *ucp.MemHandle
	grid        []float64 // rows × columns
	next        []float64
	rows        int
	out         [2][]byte // the outer rows, encoded, by side
	peer        [2]ucp.Endpoint
	key         [2]*ucp.RemoteKey     // of the neighbors' memory
	counter     [2]ucp.Atomic[uint64] // the counter there of this process's rows
	neighborErr error                 // why a neighbor cannot be reached any more
}

func newStrip(ctx context.Context, job *bootstrap.Job, x *ucp.Context, w *ucp.Worker, rows int) (*strip, error) {
	mem, err := x.Allocate(head+4*rowLen, ucp.MemConfig{})
	if err != nil {
		return nil, err
	}
	s := &strip{Job: job, w: w, mem: mem, rows: rows}
	s.out = [2][]byte{make([]byte, rowLen), make([]byte, rowLen)}
	s.grid, s.next = make([]float64, rows*columns), make([]float64, rows*columns)
	for i := range s.grid {
		s.grid[i] = start(job.Rank*len(s.grid) + i)
	}
	addresses, err := job.Allgather(ctx, w.Address())
	if err != nil {
		return nil, err
	}
	keys, err := job.Allgather(ctx, mem.Key())
	if err != nil {
		return nil, err
	}
	// Progress calls the callback, which means while this goroutine waits.
	c := ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) { s.neighborErr = err }}
	for side, rank := range [2]int{(job.Rank + job.Size - 1) % job.Size, (job.Rank + 1) % job.Size} {
		if s.peer[side], err = w.NewEndpoint(addresses[rank], c); err != nil {
			return nil, err
		}
		if s.key[side], err = s.peer[side].UnpackKey(keys[rank]); err != nil {
			return nil, err
		}
		// This process is its lower neighbor's upper side.
		if s.counter[side], err = ucp.AtomicAt[uint64](s.key[side], uint64(8*(1-side))); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// row returns the offset of a neighbor's row. A neighbor is at most one step ahead, so two sets
// suffice.
func row(step, side int) int { return head + (2*(step&1)+side)*rowLen }

// solve computes the steps.
func (s *strip) solve(ctx context.Context, steps int) error {
	for step := range steps {
		if err := s.exchange(ctx, step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		s.relax(step, 0, columns)
		s.grid, s.next = s.next, s.grid
	}
	return nil
}

// exchange writes the outer rows into the neighbors' memory and waits for the neighbors' rows.
func (s *strip) exchange(ctx context.Context, step int) error {
	encode(s.out[lower], s.grid[:columns])
	encode(s.out[upper], s.grid[(s.rows-1)*columns:])
	for side := range s.peer {
		s.key[side].Put(s.out[side], uint64(row(step, 1-side)))
		s.peer[side].Fence() // the row before its count
		s.counter[side].Add(1)
	}
	if err := s.w.Flush().Wait(ctx); err != nil { // out may be reused; a dead neighbor is reported here
		return err
	}
	err := s.w.WaitUntil(ctx, func() bool {
		return s.neighborErr != nil || s.arrived() > uint64(step)
	})
	return errors.Join(err, s.neighborErr)
}

// arrived returns how often both neighbors have written to this process's memory.
func (s *strip) arrived() uint64 { return min(s.mem.Load64(8*lower), s.mem.Load64(8*upper)) }

// relax computes the next step of some columns.
func (s *strip) relax(step, from, to int) {
	below, above := make([]float64, columns), make([]float64, columns)
	decode(below, s.mem.Bytes()[row(step, lower):])
	decode(above, s.mem.Bytes()[row(step, upper):])
	relax(s.next, s.grid, below, above, from, to)
}

// relax computes columns of next from grid between two rows: a value becomes the mean of itself and
// its four neighbors; columns wrap around.
func relax(next, grid, below, above []float64, from, to int) {
	for i := range grid {
		r, c := i/columns, i%columns
		if c < from || c >= to {
			continue
		}
		down, up := below[c], above[c]
		if r > 0 {
			down = grid[i-columns]
		}
		if i+columns < len(grid) {
			up = grid[i+columns]
		}
		left, right := grid[r*columns+(c+columns-1)%columns], grid[r*columns+(c+1)%columns]
		next[i] = (grid[i] + down + up + left + right) / 5
	}
}

// check computes the whole grid and compares its own part, bit by bit.
func (s *strip) check(steps int) error {
	grid, next := make([]float64, s.Size*s.rows*columns), make([]float64, s.Size*s.rows*columns)
	for i := range grid {
		grid[i] = start(i)
	}
	for range steps {
		relax(next, grid, grid[len(grid)-columns:], grid[:columns], 0, columns)
		grid, next = next, grid
	}
	for i, v := range s.grid {
		if want := grid[s.Rank*len(s.grid)+i]; math.Float64bits(v) != math.Float64bits(want) {
			return fmt.Errorf("row %d, column %d: %v, not %v", i/columns, i%columns, v, want)
		}
	}
	return nil
}

// start returns the value at index i of the whole grid before the first step.
func start(i int) float64 { return float64((i*7919)%1009) / 1009 }

// leave waits until all processes have finished: when a process exits, the endpoints to it fail. A
// token goes around twice: the first lap shows that all have finished, the second announces it.
func (s *strip) leave(ctx context.Context) error {
	for lap := range ucp.Tag(2) {
		token := s.w.TagRecv(make([]byte, 8), lap, ^ucp.Tag(0)).Tie(s.peer[lower])
		if s.Rank == 0 {
			s.peer[upper].TagSendUint64(0, lap) // dropped: the returning token shows whether it arrived
		}
		if _, err := token.Wait(ctx); err != nil {
			return err
		}
		if s.Rank != 0 {
			s.peer[upper].TagSendUint64(0, lap)
		}
	}
	return nil
}

func encode(b []byte, row []float64) {
	for i, v := range row {
		binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(v))
	}
}

func decode(row []float64, b []byte) {
	for i := range row {
		row[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
}
