package ud

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// hasFree reports whether a short slot may be taken.
func (n *node) hasFree(slot uint32) bool {
	return n.sees(func() (found bool) {
		var all []uint32
		for i, ok := n.tx.small.Take(); ok; i, ok = n.tx.small.Take() {
			all = append(all, i)
			found = found || i == slot
		}
		for _, i := range all {
			n.tx.small.Put(i)
		}
		return found
	})
}

// TestReservedFails: a flow that fails while a message is written into reserved memory
// leaves it to the message, and takes it back with the call that ends the reservation.
func TestReservedFails(t *testing.T) {
	for name, end := range map[string]func(e *endpoint){
		"commit": func(e *endpoint) { e.CommitAM(5) },
		"abort":  (*endpoint).Abort,
		"close":  (*endpoint).Close,
	} {
		t.Run(name, func(t *testing.T) {
			ns := nodes(t, inproc(), 2)
			a, b := ns[0], ns[1]
			p := newPair(t, ns)
			m, st := p.to.ReserveAM(1, 7, 5)
			require.Equal(t, ucs.OK, st)
			slot := p.to.resSlot
			require.NoError(t, b.Close())
			for end := ucs.Now().Add(3 * time.Minute); p.to.Fence() == ucs.OK; { // a does not progress
				require.Less(t, ucs.Now(), end)
				time.Sleep(100 * time.Microsecond)
			}
			copy(m, "hello")
			require.False(t, a.hasFree(slot), "memory is given to others while a message is written there")
			end(p.to)
			require.True(t, a.hasFree(slot))
			if name != "close" {
				until(t, func() bool { return len(a.fails) == 1 }, a)
				require.Equal(t, []uct.Failure{{Endpoint: p.to, RxConn: a.source, Acked: true}}, a.fails)
				require.Equal(t, ucs.PeerFailed, p.to.AMUint64(1, 1, 1))
			}
		})
	}
}

// TestReservedEnds: the calls that give an endpoint up give its reservation back, and
// one of a closed interface is written in vain.
func TestReservedEnds(t *testing.T) {
	ns := nodes(t, inproc(), 2)
	a, b := ns[0], ns[1]
	open := func() *endpoint {
		e, n := connect(t, a, b), len(b.got)
		until(t, func() bool { return e.AMUint64(1, 1, 1) == ucs.OK }, a, b)
		until(t, func() bool { return len(b.got) > n }, a, b)
		return e
	}
	for _, end := range []func(e *endpoint){
		(*endpoint).Close,
		func(e *endpoint) { require.Equal(t, ucs.OK, e.Flush(uct.FlushCancel, 0)) },
	} {
		e := open()
		_, st := e.ReserveAM(1, 7, 5)
		require.Equal(t, ucs.OK, st)
		slot := e.resSlot
		require.False(t, a.hasFree(slot))
		end(e)
		require.True(t, a.hasFree(slot))
		e.Close()
	}
	e := open()
	_, st := e.ReserveAM(1, 7, 5)
	require.Equal(t, ucs.OK, st)
	require.NoError(t, a.Close())
	e.CommitAM(5)
}
