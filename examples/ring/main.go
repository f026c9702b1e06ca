// Command ring passes blocks of memory around a ring of processes until each has every block, and
// checks every byte. This is the MPI allgather algorithm for long messages. It uses tagged
// messages, active messages or put.
//
//	dir=$(mktemp -d)
//	for rank in 0 1 2 3; do JOB_RANK=$rank JOB_SIZE=4 JOB_DIR=$dir go run ./examples/ring --by put & done; wait
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/pflag"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/examples/bootstrap"
	"github.com/goucx/goucx/ucp"
)

// ring is the state of one process.
type ring struct {
	*bootstrap.Job
	x           *ucp.Context
	w           *ucp.Worker
	left, right ucp.Endpoint // to rank - 1 and rank + 1
	block       int          // bytes
	laps        int
	peerErr     error // why a neighbor cannot be reached any more
}

var forms = map[string]func(context.Context, *ring) error{
	"tag": byTag,
	"am":  byAM,
	"put": byPut,
}

func main() {
	by := pflag.String("by", "tag", "tag, am or put")
	block := pflag.Int("block", 64<<10, "bytes of a block")
	laps := pflag.Int("laps", 3, "how often to go around")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *by, *block, *laps); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, by string, block, laps int) (err error) {
	form := forms[by]
	if form == nil || block < 1 || laps < 1 {
		return fmt.Errorf("no ring by %q with %d bytes and %d laps", by, block, laps)
	}
	job, err := bootstrap.Join(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	x, err := goucx.Open(ucp.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	w, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	if err != nil {
		return err
	}
	r := &ring{Job: job, x: x, w: w, block: block, laps: laps}
	if err := r.connect(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := form(ctx, r); err != nil {
		return fmt.Errorf("rank %d of %d, ring by %s: %w", r.Rank, r.Size, by, err)
	}
	took := time.Since(began).Round(time.Microsecond)
	if err := r.barrier(ctx); err != nil {
		return fmt.Errorf("rank %d of %d, barrier: %w", r.Rank, r.Size, err)
	}
	fmt.Printf("rank %d of %d: ring by %s, %d laps of %d blocks of %d bytes, all right: %v\n",
		r.Rank, r.Size, by, laps, r.Size, block, took)
	return nil
}

// connect creates the endpoints. An endpoint costs next to nothing until it is used.
func (r *ring) connect(ctx context.Context) error {
	addresses, err := r.Allgather(ctx, r.w.Address())
	if err != nil {
		return err
	}
	// Progress calls the callback, which means while this goroutine waits.
	c := ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) { r.peerErr = err }}
	if r.left, err = r.w.NewEndpoint(addresses[r.source(1)], c); err != nil {
		return err
	}
	r.right, err = r.w.NewEndpoint(addresses[(r.Rank+1)%r.Size], c)
	return err
}

// waitUntil drives the worker until cond holds or a peer is lost. After the loss of a peer, cond
// might never hold. It serves conditions that no request covers.
func (r *ring) waitUntil(ctx context.Context, cond func() bool) error {
	err := r.w.WaitUntil(ctx, func() bool { return r.peerErr != nil || cond() })
	return errors.Join(err, r.peerErr)
}

// barrier returns when all processes have entered it. A token goes around twice: the first lap
// shows that all are there, the second announces it. No process leaves while another may still
// need it: when a process exits, the endpoints to it fail.
func (r *ring) barrier(ctx context.Context) error {
	const tag = ^ucp.Tag(0)
	for range 2 {
		recv := r.w.TagRecv(make([]byte, 8), tag, tag).Tie(r.left)
		if r.Rank == 0 {
			r.right.TagSendUint64(0, tag) // dropped: the returning token shows whether it arrived
		}
		if _, err := recv.Wait(ctx); err != nil {
			return err
		}
		if r.Rank != 0 {
			r.right.TagSendUint64(0, tag)
		}
	}
	return nil
}

// source returns the rank of the block that a process receives at a step: at step 0 its own, at
// step 1 that of the left neighbor, and so on.
func (r *ring) source(step int) int { return (r.Rank - step + r.Size) % r.Size }

// fill writes the block of a rank in a lap.
func fill(p []byte, rank, lap int) {
	for i := range p {
		p[i] = value(i, rank, lap)
	}
}

// check compares a block with what that rank filled in.
func check(p []byte, rank, lap int) error {
	for i, v := range p {
		if v != value(i, rank, lap) {
			return fmt.Errorf("lap %d, block of rank %d: byte %d is %#x, not %#x", lap, rank, i, v, value(i, rank, lap))
		}
	}
	return nil
}

func value(i, rank, lap int) byte { return byte(i + i>>8 + 31*rank + 57*lap + 1) }
