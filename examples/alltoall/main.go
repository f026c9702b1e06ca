// Command alltoall sends a block from each of some processes to each other one, all at once, and
// checks every byte. It uses tagged messages, active messages or put.
//
//	dir=$(mktemp -d)
//	for rank in 0 1 2 3; do JOB_RANK=$rank JOB_SIZE=4 JOB_DIR=$dir go run ./examples/alltoall --by am & done; wait
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

// process is the state of one process.
type process struct {
	*bootstrap.Job
	x       *ucp.Context
	w       *ucp.Worker
	peers   []ucp.Endpoint // by rank; the own rank's endpoint is a loopback
	block   int            // bytes
	turns   int
	peerErr error // why a peer cannot be reached any more
}

var forms = map[string]func(context.Context, *process) error{
	"tag": byTag,
	"am":  byAM,
	"put": byPut,
}

func main() {
	by := pflag.String("by", "tag", "tag, am or put")
	block := pflag.Int("block", 64<<10, "bytes of a block")
	turns := pflag.Int("turns", 3, "how often")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *by, *block, *turns); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, by string, block, turns int) (err error) {
	form := forms[by]
	if form == nil || block < 1 || turns < 1 {
		return fmt.Errorf("no all-to-all by %q with %d bytes and %d turns", by, block, turns)
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
	p := &process{Job: job, x: x, w: w, peers: make([]ucp.Endpoint, job.Size), block: block, turns: turns}
	if err := p.connect(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := form(ctx, p); err != nil {
		return fmt.Errorf("rank %d of %d, all-to-all by %s: %w", p.Rank, p.Size, by, err)
	}
	took := time.Since(began).Round(time.Microsecond)
	if err := p.barrier(ctx, 0); err != nil {
		return fmt.Errorf("rank %d of %d, last barrier: %w", p.Rank, p.Size, err)
	}
	fmt.Printf("rank %d of %d: all-to-all by %s, %d turns of %d blocks of %d bytes, all right: %v\n",
		p.Rank, p.Size, by, turns, p.Size, block, took)
	return nil
}

// connect creates the endpoints. An endpoint costs next to nothing until it is used.
func (p *process) connect(ctx context.Context) error {
	addresses, err := p.Allgather(ctx, p.w.Address())
	if err != nil {
		return err
	}
	// Progress calls the callback, which means while this goroutine waits.
	c := ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) { p.peerErr = err }}
	for rank, a := range addresses {
		if p.peers[rank], err = p.w.NewEndpoint(a, c); err != nil {
			return err
		}
	}
	return nil
}

// waitUntil drives the worker until cond holds or a peer is lost. After the loss of a peer, cond
// might never hold. It serves conditions that no request covers.
func (p *process) waitUntil(ctx context.Context, cond func() bool) error {
	err := p.w.WaitUntil(ctx, func() bool { return p.peerErr != nil || cond() })
	return errors.Join(err, p.peerErr)
}

// tagBarrier is set only in the tags of the barrier's messages.
const tagBarrier = ucp.Tag(1) << 63

// barrier returns when all processes have entered it. It takes log2(size) steps: in each, a
// process sends to one that is twice as far away as in the last step. No process leaves the job
// without a barrier: when a process exits, the endpoints to it fail.
func (p *process) barrier(ctx context.Context, number int) error {
	for far := 1; far < p.Size; far *= 2 {
		to, from := (p.Rank+far)%p.Size, (p.Rank-far+p.Size)%p.Size
		tag := tagBarrier | ucp.Tag(number)<<32 | ucp.Tag(far)
		recv := p.w.TagRecv(make([]byte, 8), tag, ^ucp.Tag(0)).Tie(p.peers[from])
		p.peers[to].TagSendUint64(0, tag) // dropped: the Flush of Close reports a failure
		if _, err := recv.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fill writes the block from one rank to another in a turn.
func fill(b []byte, from, to, turn int) {
	for i := range b {
		b[i] = value(i, from, to, turn)
	}
}

// check compares a block with what rank from filled in for this process.
func (p *process) check(b []byte, from, turn int) error {
	for i, v := range b {
		if want := value(i, from, p.Rank, turn); v != want {
			return fmt.Errorf("turn %d, block of rank %d: byte %d is %#x, not %#x", turn, from, i, v, want)
		}
	}
	return nil
}

func value(i, from, to, turn int) byte { return byte(i + i>>8 + 31*from + 57*to + 91*turn + 1) }

// blocks allocates a block for each process.
func (p *process) blocks() [][]byte {
	bs := make([][]byte, p.Size)
	for rank := range bs {
		bs[rank] = make([]byte, p.block)
	}
	return bs
}
