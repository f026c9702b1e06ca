//go:build linux

package test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

const numSenders = 8

// sendWindow is how many messages a sender has under way at most.
const sendWindow = 32

// roleSender sends numbered messages to a receiver until it is told to stop, and
// says how many there were. The message's tag tells the sender.
func roleSender(p *parent) {
	n := must(newNode(ucp.ThreadSingle, patience))
	var id uint32
	check(scanLine(p.hear(), &id))
	e := must(n.connect(p.hear()))
	ctx := context.Background()
	var bufs [sendWindow][longest]byte
	var sent [sendWindow]ucp.Request
	p.say("sending")
	count := uint64(0)
	for {
		if count%64 == 0 {
			if _, ok := p.heard(); ok {
				break
			}
		}
		i := count % sendWindow
		check(sent[i].Wait(ctx))
		b := bufs[i][:sizeOf(id, count)]
		fill(b, id, count)
		sent[i] = send(e, b, ucp.Tag(id), count)
		n.w.Progress()
		count++
	}
	check(ucp.WaitAll(ctx, sent[:], nil))
	check(e.Flush().Wait(ctx))
	p.say(count)
	p.hear()
	check(n.x.Close()) // in order, while the others still send
	p.say("closed")
}

// send takes one form after the other.
func send(e ucp.Endpoint, p []byte, tag ucp.Tag, n uint64) ucp.Request {
	switch {
	case n%5 == 0 && len(p) <= e.MaxInline():
		return e.TagSendInline(p, tag)
	case n%5 == 1:
		return e.TagSendV([][]byte{p[:5], p[5:16], p[16:]}, tag)
	default:
		return e.TagSend(p, tag)
	}
}

// TestManySenders: every message comes once, whole and in its sender's order.
func TestManySenders(t *testing.T) {
	for name, mode := range map[string]ucp.ThreadMode{"single": ucp.ThreadSingle, "multi": ucp.ThreadMulti} {
		t.Run(name, func(t *testing.T) { manySenders(t, mode) })
	}
}

func manySenders(t *testing.T, mode ucp.ThreadMode) {
	before := takeCensus(t)
	r := newReceiver(t, mode)
	var senders [numSenders]*process
	for i := range senders {
		senders[i] = start(t, "sender")
		senders[i].say(i + 1)
		senders[i].say(r.address())
	}
	for _, p := range senders {
		p.expect("sending")
	}
	limit := time.Second
	if long() {
		limit = 30 * time.Second
	}
	began := time.Now()
	for time.Since(began) < limit {
		r.take()
	}
	r.drain(t, senders[:])
	total := uint64(0)
	for i, n := range r.next[1:] {
		require.NotZero(t, n, "sender %d", i+1)
		total += n
	}
	t.Logf("%d messages, %.1f MB, in %v; fewest of a sender %d, most %d", total, float64(r.bytes)/1e6,
		time.Since(began).Round(time.Millisecond), slices.Min(r.next[1:]), slices.Max(r.next[1:]))
	for _, p := range senders {
		p.say("close")
		until(t, func() bool { return len(p.lines) > 0 }, r.w.Progress)
		p.expect("closed")
		p.ends()
	}
	require.NoError(t, r.x.Close())
	requireBack(t, before)
	requireNoTrace(t)
}

// receiver takes messages of all senders in the order in which they match.
type receiver struct {
	*node
	t     testing.TB
	ctx   context.Context
	next  [numSenders + 1]uint64 // due of each sender
	bytes int
	bufs  [64][longest]byte
	recvs [64]ucp.RecvRequest
	turn  int
}

func newReceiver(t testing.TB, mode ucp.ThreadMode) *receiver {
	r := &receiver{node: open(t, mode), t: t, ctx: context.Background()}
	for i := range r.recvs {
		r.recvs[i] = r.w.TagRecv(r.bufs[i][:], 0, 0)
	}
	return r
}

// take progresses, and takes what came.
func (r *receiver) take() (n int) {
	r.w.Progress()
	for r.recvs[r.turn].Done() {
		m, err := r.recvs[r.turn].Wait(r.ctx)
		require.NoError(r.t, err)
		p := r.bufs[r.turn][:m.Len]
		sender, k, err := read(p)
		require.NoError(r.t, err)
		require.EqualValues(r.t, m.Tag, sender)
		require.Equal(r.t, r.next[sender], k, "of sender %d: each message once, in order", sender)
		require.Len(r.t, p, sizeOf(sender, k))
		r.next[sender]++
		r.bytes += m.Len
		clear(p[:messageHead])
		r.recvs[r.turn] = r.w.TagRecv(r.bufs[r.turn][:], 0, 0)
		r.turn = (r.turn + 1) % len(r.recvs)
		n++
	}
	return n
}

// drain stops the senders and takes what they sent, and no more.
func (r *receiver) drain(t testing.TB, senders []*process) {
	for _, p := range senders {
		p.say("stop")
	}
	for i, p := range senders {
		until(t, func() bool { return len(p.lines) > 0 }, r.take)
		var count uint64
		p.scan(&count)
		until(t, func() bool { return r.next[i+1] >= count }, r.take)
	}
	for range 20_000 {
		require.Zero(t, r.take(), "more than was sent")
	}
}
