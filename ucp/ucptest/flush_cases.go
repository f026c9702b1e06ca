package ucptest

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var flushCases = []Case{
	{"53 endpoint flush covers what waits", flushEndpoint},
	{"53 endpoint flush covers messages of all lengths in a row", flushMixed},
	{"54 worker flush: none, unconnected, all", flushWorker},
	{"56 several flushes at once", flushSeveral},
	{"57 fence keeps order and never blocks", flushFence},
	{"flush of a closed endpoint", flushClosed},
	{"a flush of the worker and an endpoint that is aborted", flushAbort},
	{"a flush of the worker and a peer that closes its endpoint", flushPeerClose},
	{"after an endpoint's flush, another endpoint's messages come later", flushThenAnother},
}

// mostFilled is how many bytes fill sends at most: where another goroutine progresses
// meanwhile there may be room for ever, and beyond the budget of unexpected
// messages they would only be announced, and wait for their receives.
const mostFilled = 8 << 20

// fill sends until some request is left waiting, and returns the number of messages.
func fill(p *Pair, e ucp.Endpoint, size int) (n int, last ucp.Request) {
	for last = (ucp.Request{}); last == (ucp.Request{}) && n*size < mostFilled; n++ {
		last = e.TagSend(pattern(size, byte(n)), 1)
	}
	if p.mode != ucp.ThreadMulti {
		require.NotZero(p.T, last, "the transport takes everything")
	}
	return n, last
}

// meet has e, an endpoint to B, connected.
func (p *Pair) meet(e ucp.Endpoint) {
	const tag ucp.Tag = 1 << 40
	e.TagSendUint64(0, tag)
	p.MustRecv(p.B.TagRecv(make([]byte, 8), tag, exact))
}

// drain receives n messages of tag 1.
func drain(p *Pair, n, size int) {
	buf := make([]byte, size)
	for i := range n {
		p.MustRecv(p.B.TagRecv(buf, 1, exact))
		require.Equal(p.T, pattern(size, byte(i)), buf, "message %d of %d", i, n)
	}
}

func flushEndpoint(t *testing.T, p *Pair) {
	require.NoError(t, p.Wait(p.AB.Flush()), "nothing sent")
	p.meet(p.AB)
	n, last := fill(p, p.AB, 3000)
	f := p.AB.Flush()
	require.NoError(t, p.Wait(f))
	require.True(t, last.Done(), "posted before the flush")
	require.NoError(t, last.Err())
	drain(p, n, 3000)
}

// flushMixed: long messages wait for the receiver to ask, and are announced only
// when there is room: the flush covers those too that were not announced yet
// when it was posted.
func flushMixed(t *testing.T, p *Pair) {
	sizes := []int{300_000, 60_000, 8}
	for round := range 4 {
		n := 10 + 10*round
		rs := make([]ucp.Request, n)
		for i := range rs {
			rs[i] = p.AB.TagSend(pattern(sizes[i%3], byte(i)), 1)
		}
		f := p.AB.Flush()
		buf := make([]byte, sizes[0])
		for i := range n {
			if f.Done() {
				require.NoError(t, f.Err())
				for k, r := range rs {
					require.True(t, r.Done(), "message %d of %d, flushed after %d were received: %s", k, n, i, r)
				}
			}
			m := p.MustRecv(p.B.TagRecv(buf, 1, exact))
			require.Equal(t, pattern(sizes[i%3], byte(i)), buf[:m.Len], "message %d of %d", i, n)
		}
		require.NoError(t, p.Wait(f))
		for _, r := range rs {
			require.NoError(t, r.Err())
		}
	}
}

func flushWorker(t *testing.T, p *Pair) {
	w := p.NewWorker()
	require.Zero(t, w.Flush(), "no endpoint")
	p.Connect(w, p.B)
	require.Zero(t, w.Flush(), "an endpoint that was not used")
	p.meet(p.AB)
	n, last := fill(p, p.AB, 3000)
	require.NoError(t, p.Wait(p.flushOf(p.A)))
	require.True(t, last.Done())
	drain(p, n, 3000)
}

func flushSeveral(t *testing.T, p *Pair) {
	var rs []ucp.Request
	total := 0
	for range 5 {
		n, _ := fill(p, p.AB, 3000)
		total += n
		rs = append(rs, p.AB.Flush(), p.flushOf(p.A), p.AB.Flush())
	}
	for i := len(rs) - 1; i >= 0; i-- {
		require.NoError(t, p.Wait(rs[i]))
	}
	require.NoError(t, ucp.WaitAll(p.deadline, rs, nil))
	buf := make([]byte, 3000)
	for range total {
		p.MustRecv(p.B.TagRecv(buf, 1, exact))
	}
}

func flushFence(t *testing.T, p *Pair) {
	p.AB.Fence()
	p.fenceOf(p.A)
	p.meet(p.AB)
	n, _ := fill(p, p.AB, 3000)
	for i := range 100 {
		p.AB.Fence()
		p.fenceOf(p.A)
		p.AB.TagSend(pattern(3000, byte(n+i)), 1)
	}
	drain(p, n+100, 3000)
}

func flushClosed(t *testing.T, p *Pair) {
	e := p.Connect(p.A, p.B)
	require.NoError(t, e.Close())
	require.ErrorIs(t, p.Wait(e.Flush()), ucp.ErrClosed)
	e.Fence()
}

// flushThenAnother: closing an endpoint flushes it. What is posted on another one
// after that comes later, however many messages are still to be received.
// flushAbort aborts the only endpoint to a peer while flushes of the worker wait behind
// its messages.
func flushAbort(t *testing.T, p *Pair) {
	e := p.Connect(p.A, p.B)
	p.meet(e)
	_, last := fill(p, e, 3000)
	behind, tagged := p.flushOf(p.A), p.flushOf(p.A)
	e.Abort(errCause)
	require.NoError(t, p.Wait(behind))
	require.NoError(t, p.Wait(tagged))
	if p.mode != ucp.ThreadMulti {
		require.ErrorIs(t, last.Err(), ucp.ErrCanceled)
	}
}

// flushPeerClose: the lane by which A acknowledges sync sends is of no endpoint of A. It
// closes with B's endpoint, and a flush of A must not fail by that.
func flushPeerClose(t *testing.T, p *Pair) {
	for range 20 {
		e := p.Connect(p.B, p.A)
		for i := range 50 {
			e.TagSendSync(pattern(8, byte(i)), 1)
		}
		got := make([]ucp.RecvRequest, 50)
		for i := range got {
			got[i] = p.A.TagRecv(make([]byte, 8), 1, exact)
		}
		flushes := make([]ucp.Request, 0, 200)
		for range cap(flushes) {
			flushes = append(flushes, p.flushOf(p.A))
			p.progressOf(p.A)
			if len(flushes) == cap(flushes)/2 {
				e.Abort(errCause)
			}
			p.progressOf(p.B)
		}
		for _, f := range flushes {
			require.NoError(t, p.Wait(f))
		}
		for _, r := range got {
			r.Cancel()
			r.Drop()
		}
		p.Settle()
	}
}

func flushThenAnother(t *testing.T, p *Pair) {
	const tag ucp.Tag = 9
	buf := make([]byte, 8)
	for round, n := range []int{1, 63, 64, 65, 200, 1000, 70, 3} {
		for part := range 2 {
			e := p.Connect(p.A, p.B)
			for i := range n {
				e.TagSendUint64(uint64(part*n+i), tag)
			}
			require.NoError(t, p.Close(p.A, e))
		}
		for i := range 2 * n {
			p.MustRecv(p.B.TagRecv(buf, tag, exact))
			require.EqualValues(t, i, binary.LittleEndian.Uint64(buf), "of %d in round %d", 2*n, round)
		}
	}
}
