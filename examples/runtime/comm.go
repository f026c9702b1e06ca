package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goucx/goucx/examples/bootstrap"
	"github.com/goucx/goucx/ucp"
)

// comm is a group of processes that exchange messages, as MPI's communicator. One goroutine
// uses it.
type comm struct {
	*job
	id      int   // of the group, in the tags of its messages
	ranks   []int // of the members, in the job
	me      int   // this process among the members
	counter int   // collectives begun
}

// job is what all groups of a process share.
type job struct {
	*bootstrap.Job
	w     *ucp.Worker
	peers []ucp.Endpoint  // by rank
	gone  []error         // why the endpoint of a rank has failed; nil: it has not
	watch ucp.RecvRequest // see watchAll
}

// Tags: kind in the highest byte, then group, then the program's tag or the number of the
// collective, then the sender.
const (
	kindUser ucp.Tag = iota << 56
	kindCollective
	kindNever // of no message

	anyMember          = -1
	senderBits ucp.Tag = 1<<16 - 1
	exact              = ^ucp.Tag(0)
)

func (c *comm) tag(kind ucp.Tag, n, sender int) ucp.Tag {
	return kind | ucp.Tag(c.id)<<48 | ucp.Tag(uint16(n))<<16 | ucp.Tag(sender)
}

// connect joins the job: it exchanges addresses and connects to all processes. A runtime that
// has to notice each death connects to every process.
func connect(ctx context.Context, b *bootstrap.Job, w *ucp.Worker) (*comm, error) {
	addresses, err := b.Allgather(ctx, w.Address())
	if err != nil {
		return nil, err
	}
	j := &job{Job: b, w: w, peers: make([]ucp.Endpoint, b.Size), gone: make([]error, b.Size)}
	c := &comm{job: j, me: b.Rank, ranks: make([]int, b.Size)}
	for rank, a := range addresses {
		c.ranks[rank] = rank
		// The callback runs in progress, which means while this goroutine waits.
		config := ucp.EndpointConfig{Eager: true, OnFailure: func(_ ucp.Endpoint, err error) { j.gone[rank] = err }}
		if j.peers[rank], err = w.NewEndpoint(a, config); err != nil {
			return nil, err
		}
	}
	j.watchAll()
	return c, nil
}

// watchAll posts a receive that is tied to all endpoints. While it waits, goucx probes every process
// and not only the one whose message this process waits for. So all notice a death at the same time.
func (j *job) watchAll() { j.watch = j.w.TagRecv(nil, kindNever, exact).TieAny() }

// isend begins to send p to a member. p must not be changed until the request completes.
func (c *comm) isend(p []byte, to, tag int) ucp.Request {
	return c.peers[c.ranks[to]].TagSend(p, c.tag(kindUser, tag, c.me))
}

// irecv begins to receive a message of a member, or of anyMember, into p. It fails if that
// member is lost; of anyMember, if any process is.
func (c *comm) irecv(p []byte, from, tag int) ucp.RecvRequest {
	if from == anyMember {
		return c.w.TagRecv(p, c.tag(kindUser, tag, 0), ^senderBits).TieAny()
	}
	return c.w.TagRecv(p, c.tag(kindUser, tag, from), exact).Tie(c.peers[c.ranks[from]])
}

// sender returns the member that sent a message.
func sender(m ucp.Message) int { return int(m.Tag & senderBits) }

// died returns the ranks whose processes have died, not those that have left in order.
func (j *job) died() (ranks []int) {
	for rank, err := range j.gone {
		if err != nil && !errors.Is(err, ucp.ErrPeerClosed) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// explain names the processes that have died, for err, which ended an operation. A process that
// noticed the death earlier may have left: then err is its end, and the death is still to be
// noticed here. A receive that is tied to all endpoints waits for it, so that goucx probes them.
func (j *job) explain(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for errors.Is(err, ucp.ErrPeerFailed) && len(j.died()) == 0 && ctx.Err() == nil {
		for rank, why := range j.gone {
			if why != nil {
				_ = j.peers[rank].Close() // it has left, and does not end the receive again
			}
		}
		_, _ = j.watch.Finish(ctx)
		j.watchAll()
	}
	for _, rank := range j.died() {
		err = fmt.Errorf("rank %d has died: %w", rank, err)
	}
	return err
}

// without returns the group of the members that stay. All members call it, and a collective of
// the old group sends them the ranks that leave. The endpoints of those that leave are closed, so that
// their end is no failure.
func (c *comm) without(ctx context.Context, leaves bool) (*comm, error) {
	mask := []uint64{0}
	if leaves {
		mask[0] = 1 << c.me
	}
	if err := c.allreduce(ctx, mask); err != nil {
		return nil, err
	}
	if err := c.barrier(ctx); err != nil { // all know it
		return nil, err
	}
	next := &comm{job: c.job, id: c.id + 1, me: -1}
	for member, rank := range c.ranks {
		if mask[0]>>member&1 == 0 {
			if rank == c.Rank {
				next.me = len(next.ranks)
			}
			next.ranks = append(next.ranks, rank)
		}
	}
	for member, rank := range c.ranks {
		if mask[0]>>member&1 != 0 && !leaves {
			if err := c.peers[rank].Close(); err != nil && !errors.Is(err, ucp.ErrPeerClosed) {
				return nil, fmt.Errorf("let rank %d go: %w", rank, err)
			}
			c.gone[rank] = nil
		}
	}
	if c.watch.Done() { // one that leaves has closed before
		c.watch.Drop()
		c.watchAll()
	}
	next.ranks = slices.Clip(next.ranks)
	return next, nil
}
