package ucptest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var connectCases = []Case{
	{"89 many endpoints to one peer", connectMany},
	{"94 close with a thousand messages waiting", closeThousand},
	{"98 a flush while connecting", connectFlush},
}

// connectMany: messages of each endpoint come in order, and its end leaves the
// others alone.
func connectMany(t *testing.T, p *Pair) {
	const n, rounds = 10, 30
	var es [n]ucp.Endpoint
	seen := make(map[ucp.Endpoint]bool)
	for i := range es {
		es[i] = p.Connect(p.A, p.B)
		seen[es[i]] = true
	}
	require.Len(t, seen, n, "each is itself")
	for v := range uint64(rounds) {
		for i, e := range es {
			e.TagSendUint64(v, ucp.Tag(i))
		}
	}
	for i := n - 1; i >= 0; i-- { // last first
		buf := make([]byte, 8)
		for v := range byte(rounds) {
			p.MustRecv(p.B.TagRecv(buf, ucp.Tag(i), exact))
			require.Equal(t, v, buf[0], "endpoint %d", i)
		}
		require.NoError(t, es[i].Close())
		for _, e := range es[:i] {
			require.NoError(t, e.Info().Err)
		}
	}
}

// closeThousand: what waits in order behind a full transport is delivered before
// the endpoint closes.
func closeThousand(t *testing.T, p *Pair) {
	const n = 1000
	e := p.Connect(p.A, p.B)
	p.meet(e)
	full, _ := fill(p, e, 3000)
	var last ucp.Request
	for i := range n {
		last = e.TagSend(pattern(3000, byte(full+i)), 1)
	}
	f := e.Flush()
	if p.mode == ucp.ThreadSingle && p.A != p.B {
		require.False(t, f.Done(), "they wait")
		p.Until(f.Done) // Close drives A alone
	}
	require.NoError(t, e.Close())
	require.True(t, last.Done())
	require.NoError(t, last.Err())
	drain(p, full+n, 3000)
}

// connectFlush: a flush right behind the first message covers it, and ends.
func connectFlush(t *testing.T, p *Pair) {
	for i := range scaled(50) {
		w := p.NewWorker()
		peer := p.B
		if p.A == p.B {
			peer = w
		}
		e := p.Connect(w, peer)
		tag := ucp.Tag(1000 + i)
		sent := e.TagSend(pattern(5000, byte(i)), tag)
		fs := []ucp.Request{e.Flush(), w.Flush(), e.Flush()}
		for _, f := range fs {
			require.NoError(t, p.Wait(f))
		}
		require.True(t, sent.Done())
		buf := make([]byte, 5000)
		assert.Equal(t, 5000, p.MustRecv(peer.TagRecv(buf, tag, exact)).Len)
		require.Equal(t, pattern(5000, byte(i)), buf)
		require.NoError(t, e.Close())
	}
}
