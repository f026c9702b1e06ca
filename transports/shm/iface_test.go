package shm

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
)

// recorder is a handler that counts and copies what comes.
type recorder struct {
	n         int
	last      []byte
	header    uint64
	id        uct.AMID
	failures  []uct.Failure
	pending   func([]uct.Token) int
	onAM      func(d uct.Desc, b []byte)
	onFailure func(uct.Failure)
	onEvents  func([]uct.Event)
}

func (r *recorder) HandleEvents(es []uct.Event) {
	if r.onEvents != nil {
		r.onEvents(es)
	}
}

func (r *recorder) HandleAM(mem []byte, ds []uct.Desc) uint64 {
	for i := range ds {
		d := &ds[i]
		r.n++
		r.header, r.id = d.Header, d.ID
		r.last = append(r.last[:0], mem[d.Off:][:d.Len]...)
		if r.onAM != nil {
			r.onAM(*d, r.last)
		}
	}
	return 0
}

func (r *recorder) HandlePending(ts []uct.Token) int {
	if r.pending != nil {
		return r.pending(ts)
	}
	return 0
}

func (r *recorder) HandleFailure(f uct.Failure) {
	r.failures = append(r.failures, f)
	if r.onFailure != nil {
		r.onFailure(f)
	}
}

// openTest opens an iface on a domain of its own.
func openTest(t testing.TB, h uct.Handler) *iface {
	d := newTestDomain(t)
	f, err := openIface(d, uct.IfaceInfo{}, uct.IfaceConfig{Handler: h, Worker: uct.UUID{1}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f.(*iface)
}

func addressOf(f uct.Iface) uct.Address {
	return uct.Address{Device: f.DeviceAddress(nil), Iface: f.Address(nil)}
}

func connectTest(t testing.TB, f, to *iface) *ep {
	e, err := f.NewEndpoint(addressOf(to))
	require.NoError(t, err)
	return e.(*ep)
}

// until progresses the ifaces until cond holds.
func until(t testing.TB, cond func() bool, fs ...*iface) {
	t.Helper()
	limit := ucs.Now().Add(patience)
	for i := 0; !cond(); i++ {
		for _, f := range fs {
			f.Progress(64)
		}
		if i&1023 == 1023 {
			require.True(t, ucs.Now().Before(limit), "nothing happens")
			cpu.Yield()
		}
	}
}

func TestSendBeforeAcceptArrives(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	e := connectTest(t, a, b)
	require.Equal(t, ucs.OK, e.AMShort(3, 77, []byte("hello")))
	require.Equal(t, ucs.OK, e.AMUint64(4, 78, 99))
	until(t, func() bool { return rb.n == 2 }, b) // the sender does nothing more
	require.Equal(t, uct.AMID(4), rb.id)
	require.Equal(t, uint64(99), binary.LittleEndian.Uint64(rb.last))
	require.Equal(t, 1, b.ActiveEndpoints())

	back := connectTest(t, b, a)
	require.False(t, back.Has(conn.Initiated), "the reply takes the connection that the peer made")
	require.Equal(t, ucs.OK, back.AMShort(5, 1, make([]byte, 2000)))
	until(t, func() bool { return ra.n == 1 }, a)
	require.Len(t, ra.last, 2000)
}

func TestManyMessagesInOrder(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	var want uint64
	rb.onAM = func(d uct.Desc, p []byte) {
		require.Equal(t, want, d.Header)
		require.Len(t, p, int(want%uint64(b.attr.AM.Short)))
		want++
	}
	e := connectTest(t, a, b)
	buf := make([]byte, b.attr.AM.Short)
	for i := uint64(0); i < 50_000; {
		if s := e.AMShort(1, i, buf[:i%uint64(len(buf))]); s == ucs.OK {
			i++
			continue
		}
		b.Progress(64)
	}
	until(t, func() bool { return want == 50_000 }, b)
}

// A short reservation, though it would fit a cell, waits for the bulk area: while
// that is full the pending queue takes it instead of sending it away to try again.
func TestPendingOfShortReservations(t *testing.T) {
	for _, n := range []int{1, 16, ring.InlineMax, ring.InlineMax + 1} {
		var ra, rb recorder
		a, b := openTest(t, &ra), openTest(t, &rb)
		e := connectTest(t, a, b)
		for size := a.attr.AM.Bcopy; size > 0; { // fill the bulk area, leave cells
			if _, s := e.ReserveAM(1, 0, size); s != ucs.OK {
				size /= 2
				continue
			}
			e.CommitAM(size)
		}
		require.True(t, e.tx.Room(), "cells are left")
		_, s := e.ReserveAM(1, 0, n)
		require.Equal(t, ucs.NoResource, s)
		require.Equal(t, ucs.OK, e.PendingAdd(7), "%d bytes: there is no room to try again", n)
		sent := false
		ra.pending = func(ts []uct.Token) int {
			if _, s := e.ReserveAM(2, 0, n); s != ucs.OK {
				return 0
			}
			e.CommitAM(n)
			sent = true
			return len(ts)
		}
		until(t, func() bool { return sent }, a, b)
	}
}

func TestPendingGoesOnWhenRoomComesBack(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	e := connectTest(t, a, b)
	sent := 0
	for e.AMUint64(1, 0, uint64(sent)) == ucs.OK {
		sent++
	}
	require.Equal(t, a.layout.Cells-1, sent)
	require.Equal(t, ucs.OK, e.PendingAdd(7))
	require.Equal(t, ucs.OK, e.PendingAdd(8))
	var got []uct.Token
	ra.pending = func(ts []uct.Token) int {
		require.Equal(t, ucs.OK, e.AMUint64(1, 0, uint64(ts[0])))
		got = append(got, ts[0])
		return 1
	}
	until(t, func() bool { return rb.n >= 20 }, b)
	require.Equal(t, ucs.NoResource, e.AMUint64(1, 0, 0), "nothing overtakes a waiting token")
	require.Equal(t, ucs.NoResource, e.PutShort([]byte{1}, 0, 0))
	until(t, func() bool { return len(got) == 2 }, a)
	require.Equal(t, []uct.Token{7, 8}, got)
	require.Equal(t, ucs.OK, e.AMUint64(1, 0, 9))
	until(t, func() bool { return rb.n == sent+3 }, b)
	require.Equal(t, uint64(9), binary.LittleEndian.Uint64(rb.last))
}

func TestPeerClosesItsWorker(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	e := connectTest(t, a, b)
	e.AMShort(1, 0, nil)
	until(t, func() bool { return rb.n == 1 }, a, b)
	back := connectTest(t, b, a)
	require.Equal(t, ucs.OK, back.AMShort(1, 5, []byte("last words")))
	require.NoError(t, b.Close())
	until(t, func() bool { return len(ra.failures) == 1 }, a)
	require.Equal(t, "last words", string(ra.last), "what was sent before is delivered")
	require.Equal(t, uct.Endpoint(e), ra.failures[0].Endpoint)
	require.NoError(t, ra.failures[0].Err, "it closed in order")
	require.Equal(t, ucs.PeerFailed, e.AMShort(1, 0, nil))
	require.Equal(t, ucs.PeerFailed, e.PutUint64(1, 0, 0))
	e.Close()
	until(t, func() bool { return a.Len() == 0 }, a)
}

// TestCloseBeforeAccept: peers that an iface has not accepted when it closes are notified that it closed in
// order. What had arrived by then counts as acknowledged, as for accepted peers.
func TestCloseBeforeAccept(t *testing.T) {
	for _, message := range []bool{true, false} {
		const peers = 40 // more than are accepted at once
		b := openTest(t, new(recorder))
		var rs [peers]recorder
		var as [peers]*iface
		for i := range rs {
			as[i] = openTest(t, &rs[i])
			e := connectTest(t, as[i], b)
			if message {
				require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
			}
		}
		require.NoError(t, b.Close())
		for i := range rs {
			until(t, func() bool { return len(rs[i].failures) == 1 }, as[i])
			require.NoError(t, rs[i].failures[0].Err, "it closed in order")
			require.True(t, rs[i].failures[0].Acked)
		}
	}
}

// TestCloseWhileConnectsCross: an iface that closes while its connect crosses that of its peer has
// closed in order, whichever connect is kept. What it sent is delivered.
func TestCloseWhileConnectsCross(t *testing.T) {
	for closing := range 2 {
		var rs [2]recorder
		fs := [2]*iface{openTest(t, &rs[0]), openTest(t, &rs[1])}
		for i := range fs {
			require.Equal(t, ucs.OK, connectTest(t, fs[i], fs[1-i]).AMShort(1, 5, []byte("last words")))
		}
		require.NoError(t, fs[closing].Close())
		r := &rs[1-closing]
		until(t, func() bool { return r.n > 0 && len(r.failures) > 0 }, fs[1-closing])
		for _, f := range r.failures {
			require.NoError(t, f.Err, "iface %d closed in order", closing)
		}
	}
}

func TestCloseOfBothEndsReleasesThePair(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	for range 3 {
		e := connectTest(t, a, b)
		n := rb.n
		require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
		e.Close()
		until(t, func() bool { return rb.n == n+1 && a.Len() == 0 && b.Len() == 0 }, a, b)
	}
	require.Zero(t, a.ActiveEndpoints()+b.ActiveEndpoints())
	for _, f := range append(ra.failures, rb.failures...) {
		require.NoError(t, f.Err)
		require.Nil(t, f.Endpoint)
	}
}

func TestCounters(t *testing.T) {
	var ra, rb recorder
	var group stats.Group
	d := newTestDomain(t)
	f, err := d.OpenIface(uct.IfaceInfo{Transport: transportName, Device: deviceName}, uct.IfaceConfig{Handler: &ra, Worker: uct.UUID{1}, Stats: &group})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	b := openTest(t, &rb)
	e := connectTest(t, f.(*iface), b)
	for e.AMShort(1, 0, nil) == ucs.OK {
	}
	require.Equal(t, ucs.OK, e.PendingAdd(1))
	got := map[string]uint64{}
	for _, c := range group.Snapshot() {
		got[c.Name] = c.Value
	}
	require.Equal(t, uint64(1), got["shm.connected"])
	require.Equal(t, uint64(1), got["shm.no_room"])
	require.Equal(t, uint64(1), got["shm.pending"])
	e.PendingPurge(func(uct.Token) {})
	until(t, func() bool { return rb.n > 0 }, b)
	require.Equal(t, uint64(1), b.stats.Value(statAccepted))
	require.NoError(t, f.Close())
	require.Empty(t, group.Snapshot())
}

func BenchmarkAMShort(b *testing.B) {
	for _, n := range []int{8, 1024} {
		b.Run(map[int]string{8: "8B", 1024: "1KB"}[n], func(b *testing.B) {
			var ra, rb recorder
			fa, fb := openTest(b, &ra), openTest(b, &rb)
			e := connectTest(b, fa, fb)
			e.AMShort(1, 0, nil)
			until(b, func() bool { return rb.n == 1 }, fa, fb)
			p := make([]byte, n)
			b.ReportAllocs()
			for b.Loop() {
				e.AMShort(1, 0, p)
				fb.Progress(64)
			}
		})
	}
}

func BenchmarkProgressIdle(b *testing.B) {
	var ra, rb recorder
	fa, fb := openTest(b, &ra), openTest(b, &rb)
	connectTest(b, fa, fb).AMShort(1, 0, nil)
	until(b, func() bool { return rb.n == 1 }, fa, fb)
	for b.Loop() {
		fb.Progress(64)
	}
}
