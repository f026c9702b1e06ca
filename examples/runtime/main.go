// Command runtime is a small message-passing runtime of the kind of MPI over goucx, and a program
// that uses it: point-to-point messages with receives from any source, barrier, broadcast,
// allreduce and all-to-all, from 0 bytes to 4 MB. It checks every byte.
//
//	dir=$(mktemp -d)
//	for rank in 0 1 2 3; do JOB_RANK=$rank JOB_SIZE=4 JOB_DIR=$dir go run ./examples/runtime & done; wait
//
// If a process is killed, the others end and name it. One that leaves in order (--leave) does not
// disturb them.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/spf13/pflag"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/examples/bootstrap"
	"github.com/goucx/goucx/ucp"
)

func main() {
	most := pflag.Int("max", 4<<20, "longest message in bytes")
	rounds := pflag.Int("rounds", 2, "rounds over all lengths")
	leave := pflag.Int("leave", -1, "rank that leaves after the first round")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *most, *rounds, *leave); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, most, rounds, leave int) (err error) {
	b, err := bootstrap.Join(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if b.Size > 64 || most < 0 || rounds < 1 {
		return fmt.Errorf("%d processes of at most 64, messages of %d bytes, %d rounds", b.Size, most, rounds)
	}
	x, err := goucx.Open(ucp.Config{Features: ucp.FeatureTag})
	if err != nil {
		return err
	}
	w, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	if err != nil {
		return errors.Join(err, x.Close())
	}
	c, err := connect(ctx, b, w)
	if err == nil {
		err = exchange(ctx, c, most, rounds, leave)
	}
	if err == nil {
		fmt.Printf("rank %d of %d: all right\n", b.Rank, b.Size)
		return x.Close()
	}
	if c != nil {
		err = c.explain(err)
	}
	_ = x.Close() // what it could not flush goes to processes that are lost
	return fmt.Errorf("rank %d of %d: %w", b.Rank, b.Size, err)
}

// exchange runs the rounds. The members that stay after the first one are a new group.
func exchange(ctx context.Context, c *comm, most, rounds, leave int) error {
	p := newProgram(c, most)
	for round := range rounds {
		for n := 0; n <= most; n = max(8*n, 1) {
			if err := p.round(ctx, n, round); err != nil {
				return fmt.Errorf("round %d, %d bytes: %w", round, n, err)
			}
		}
		fmt.Printf("rank %d of %d: round %d\n", c.Rank, c.Size, round)
		if round > 0 || leave < 0 {
			continue
		}
		next, err := p.without(ctx, c.Rank == leave)
		if err != nil || next.me < 0 {
			return err
		}
		p.comm = next
	}
	return p.barrier(ctx) // no process leaves while another one needs it
}

// program is the program that uses the runtime. All messages are parts of one pattern, so that
// filling and checking them costs little.
type program struct {
	*comm
	pattern []byte
	in, out [][]byte
}

func newProgram(c *comm, most int) *program {
	p := &program{comm: c, pattern: make([]byte, most+4096), in: make([][]byte, c.Size), out: make([][]byte, c.Size)}
	for i := range p.pattern {
		p.pattern[i] = byte(i + i>>8*31 + i>>16*17)
	}
	for i := range p.in {
		p.in[i] = make([]byte, most+1) // one more than the longest, so that nothing is cut off unseen
	}
	return p
}

// data returns the message of n bytes that one member sends to another in a round.
func (p *program) data(from, to, n, round int) []byte {
	at := (from*59 + to*7 + round*641) % 4096
	return p.pattern[at:][:n]
}

func (p *program) check(got []byte, from, to, n, round int) error {
	if !bytes.Equal(got, p.data(from, to, n, round)) {
		return fmt.Errorf("member %d got other bytes than member %d sent", p.me, from)
	}
	return nil
}

func (p *program) round(ctx context.Context, n, round int) error {
	size := len(p.ranks)
	if err := p.anySource(ctx, n, round); err != nil {
		return fmt.Errorf("any source: %w", err)
	}
	if err := p.barrier(ctx); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}

	root := round % size
	buf := p.in[0][:n]
	if p.me == root {
		copy(buf, p.data(root, root, n, round))
	}
	if err := p.broadcast(ctx, buf, root); err != nil {
		return fmt.Errorf("broadcast: %w", err)
	}
	if err := p.check(buf, root, root, n, round); err != nil {
		return fmt.Errorf("broadcast: %w", err)
	}

	words := make([]uint64, n/8)
	for i := range words {
		words[i] = uint64(i)<<8 + uint64(p.me)
	}
	if err := p.allreduce(ctx, words); err != nil {
		return fmt.Errorf("allreduce: %w", err)
	}
	for i, v := range words {
		if want := uint64(size)*uint64(i)<<8 + uint64(size*(size-1)/2); v != want {
			return fmt.Errorf("allreduce: word %d is %d, not %d", i, v, want)
		}
	}

	for to := range size {
		p.out[to] = p.data(p.me, to, n, round)
	}
	err := p.alltoall(ctx, p.out[:size], p.in[:size], func(from, got int) error {
		return p.check(p.in[from][:got], from, p.me, n, round)
	})
	if err != nil {
		return fmt.Errorf("all-to-all: %w", err)
	}
	return nil
}

// anySource: each member sends a message to each other one. The receives take any of them.
func (p *program) anySource(ctx context.Context, n, round int) error {
	size := len(p.ranks)
	var rs []ucp.AnyRequest
	for i := range size - 1 {
		rs = append(rs, p.irecv(p.in[i], anyMember, round).Any())
	}
	for i := range size - 1 {
		to := (p.me + 1 + i) % size
		rs = append(rs, p.isend(p.data(p.me, to, n, round), to, round).Any())
	}
	seen := make([]bool, size)
	for {
		r, err := ucp.WaitAny(ctx, rs)
		if err != nil || r.Index < 0 {
			return err
		}
		if r.Index >= size-1 {
			continue // a send
		}
		from := sender(r.Message)
		if seen[from] {
			return fmt.Errorf("a second message of member %d", from)
		}
		seen[from] = true
		if err := p.check(p.in[r.Index][:r.Len], from, p.me, n, round); err != nil {
			return err
		}
	}
}
