package shm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// TestPeerSendsNoMore: whoever has an endpoint on a connection hears that the peer
// ended its side, after the last message and once, may still send to it, and ends
// the connection by closing.
func TestPeerSendsNoMore(t *testing.T) {
	c := newCouple(t)
	n := c.rb.n
	for range 5 {
		require.Equal(t, ucs.OK, c.ab.AMShort(1, 0, nil))
	}
	c.ab.Close()
	until(t, func() bool { return len(c.rb.failures) > 0 }, c.a, c.b)
	require.Equal(t, n+5, c.rb.n, "told before the last message")
	require.Equal(t, []uct.Failure{{RxConn: 1}}, c.rb.failures)
	require.Equal(t, ucs.OK, c.ba.AMShort(1, 0, []byte("still")))
	until(t, func() bool { return string(c.ra.last) == "still" }, c.a, c.b)
	require.Equal(t, 1, c.a.Len())
	c.ba.Close()
	until(t, func() bool { return c.a.Len()+c.b.Len() == 0 }, c.a, c.b)
	require.Len(t, c.rb.failures, 1)
	require.Len(t, c.ra.failures, 1)
}

// TestPeerSendsNoMoreAndDies: the endpoint fails all the same.
func TestPeerSendsNoMoreAndDies(t *testing.T) {
	c := newCouple(t)
	c.ab.Close()
	until(t, func() bool { return len(c.rb.failures) > 0 }, c.a, c.b)
	require.NoError(t, c.ab.sock.Close())
	c.ab.sock = nil
	until(t, func() bool { return len(c.rb.failures) > 1 }, c.b)
	require.Equal(t, uct.Endpoint(c.ba), c.rb.failures[1].Endpoint)
	require.Zero(t, c.rb.failures[1].RxConn, "reported before")
	require.ErrorIs(t, c.rb.failures[1].Err, ucs.ErrPeerFailed)
	require.Equal(t, ucs.PeerFailed, c.ba.AMShort(1, 0, nil))
	c.ba.Close()
	until(t, func() bool { return c.b.Len() == 0 }, c.b)
}
