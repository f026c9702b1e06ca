package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Memory windows: keys for parts of a region, that a queue pair binds in the order of its
// requests.
var windowCases = []testCase{
	{"type-1", 0, func(e *env) { windowOpens(e, verbs.MWType1) }},
	{"type-2", 0, func(e *env) { windowOpens(e, verbs.MWType2) }},
	{"rights", 0, windowRights},
	{"bounds", 0, windowBounds},
	{"not-bound", 0, windowNotBound},
	{"rebind", 0, windowRebind},
	{"unbind", 0, windowUnbind},
	{"any-qp", 0, windowAnyQP},
	{"one-qp", 0, windowOneQP},
	{"bound-already", 0, windowBoundAlready},
	{"local-invalidate", 0, windowLocalInvalidate},
	{"send-invalidate", 0, windowSendInvalidate},
	{"type-1-stays", 0, windowType1Stays},
	{"bad-bind", 0, windowBadBind},
	{"region-busy", 0, windowRegionBusy},
	{"region-gone", 0, windowRegionGone},
	{"domain-busy", 0, windowDomainBusy},
	{"closed", 0, windowClosed},
	{"order", 0, windowOrder},
	{"by-state", 0, windowByState},
	{"no-local-use", 0, windowNoLocalUse},
	{"unreliable", 0, windowUnreliable},
	{"datagram", 0, windowDatagram},
	{"limit", 0, windowLimit},
}

// opened is a window of the second side over a part of its memory.
type opened struct {
	*duo
	w      verbs.MW
	region *mem
	id     uint64 // of the last bind
}

const (
	windowFrom = 64
	windowLen  = 4096
)

// window makes a window of type t and memory that it can be bound to.
func (d *duo) window(t verbs.MWType) *opened {
	d.Helper()
	w, err := verbs.AllocMW(d.sides[1].pd, t)
	d.unlessSupported(err, "a memory window of this type")
	o := &opened{duo: d, w: w, region: d.sides[1].bindable(everything)}
	d.closes("window", w.Close) // before its region
	return o
}

// bindable registers memory that windows may be bound to.
func (s *side) bindable(access verbs.Access) *mem {
	s.env.Helper()
	buf := make([]byte, 4*windowLen)
	m, err := s.pd.Register(buf, verbs.MRConfig{Access: access | verbs.BindMW})
	s.env.unlessSupported(err, "memory for windows")
	s.env.closes("mr", m.Close)
	return &mem{MR: m, buf: buf}
}

func (o *opened) part(access verbs.Access) verbs.MWBind {
	return verbs.MWBind{MR: o.region.MR, Addr: o.region.Addr() + windowFrom, Len: windowLen, Access: access}
}

const windowRightsAll = verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

// binds binds the window by q and returns the key before.
func (o *opened) binds(q *qp, b verbs.MWBind) uint32 {
	o.Helper()
	before := o.w.RKey()
	o.id++
	require.NoError(o, verbs.BindWindow(q.QP, 100+o.id, verbs.SendSignaled, o.w, b))
	require.NotEqual(o, before, o.w.RKey(), "each bind has a key of its own")
	require.Equal(o, verbs.WCBindMW.String(), q.sent(100+o.id).Op.String())
	return before
}

// through is a request by the key to the region from the window's off on.
func (o *opened) through(key uint32, op verbs.Opcode, off, n int) verbs.SendWR {
	w := at(request(1, op, o.am.sge(0, n)), o.region, windowFrom+off)
	w.RKey = key
	return w
}

// refusedTo wants the peer to be refused w, which ends the connection.
func (o *opened) refusedTo(d *duo, w verbs.SendWR) {
	o.Helper()
	d.a.send(w)
	d.a.sentAs(w.ID, verbs.WCRemAccessErr)
}

// moves carries data through the window both ways.
func (o *opened) moves(d *duo, key uint32) {
	o.Helper()
	for _, n := range []int{8, windowLen} {
		want := append([]byte{}, o.am.fill(n, byte(n)+byte(key))...)
		d.a.send(o.through(key, verbs.OpWrite, 0, n))
		d.a.sent(1)
		require.Equal(o, want, o.region.buf[windowFrom:][:n])
		clear(o.am.buf[:n])
		d.a.send(o.through(key, verbs.OpRead, 0, n))
		d.a.sent(1)
		require.Equal(o, want, o.am.buf[:n])
	}
}

// windowOpens: peers use the memory by the window's key as by that of a region.
func windowOpens(e *env, t verbs.MWType) {
	d := e.rc(nil)
	o := d.window(t)
	o.binds(d.b, o.part(windowRightsAll))
	require.NotEqual(e, o.region.RKey(), o.w.RKey())
	o.moves(d, o.w.RKey())
	w := o.through(o.w.RKey(), verbs.OpFetchAdd, 0, 8)
	w.Swap = 1
	d.a.send(w)
	d.a.sent(1)
	d.a.send(at(request(1, verbs.OpWrite, o.am.sge(0, 8)), o.region, 0)) // the region's key goes on
	d.a.sent(1)
}

// windowRights: the rights of the window hold, not those of the region.
func windowRights(e *env) {
	for access, allowed := range map[verbs.Access][]verbs.Opcode{
		0: nil, verbs.RemoteRead: {verbs.OpRead}, verbs.RemoteWrite: {verbs.OpWrite}, verbs.RemoteAtomic: {verbs.OpFetchAdd},
	} {
		for _, op := range []verbs.Opcode{verbs.OpRead, verbs.OpWrite, verbs.OpFetchAdd} {
			d := e.rc(nil)
			o := d.window(verbs.MWType1)
			o.binds(d.b, o.part(access))
			w := o.through(o.w.RKey(), op, 0, 8)
			if len(allowed) == 1 && allowed[0] == op {
				d.a.send(w)
				d.a.sent(1)
				continue
			}
			o.refusedTo(d, w)
			d.b.fails()
		}
	}
}

// windowBounds: bytes of the region beside the window are out of reach.
func windowBounds(e *env) {
	for _, c := range []struct{ off, n int }{{-8, 8}, {-4, 8}, {windowLen - 4, 8}, {windowLen, 8}, {0, windowLen + 1}} {
		for _, op := range []verbs.Opcode{verbs.OpRead, verbs.OpWrite} {
			d := e.rc(nil)
			o := d.window(verbs.MWType1)
			o.binds(d.b, o.part(windowRightsAll))
			d.am.fill(64, 1)
			o.refusedTo(d, o.through(o.w.RKey(), op, c.off, c.n))
			require.Equal(e, make([]byte, len(o.region.buf)), o.region.buf)
		}
	}
}

// windowNotBound: a peer has no access with the key of a new window.
func windowNotBound(e *env) {
	d := e.rc(nil)
	o := d.window(verbs.MWType1)
	o.refusedTo(d, o.through(o.w.RKey(), verbs.OpRead, 0, 8))
}

// windowRebind: a window of type 1 is moved by another bind, and the key before is worth nothing.
func windowRebind(e *env) {
	d := e.rc(nil)
	o := d.window(verbs.MWType1)
	o.binds(d.b, o.part(windowRightsAll))
	b := o.part(windowRightsAll)
	b.Addr, b.Len = o.region.Addr(), windowLen/2
	before := o.binds(d.b, b)
	w := at(request(1, verbs.OpWrite, d.am.sge(0, 8)), o.region, 0)
	w.RKey = o.w.RKey()
	d.a.send(w)
	d.a.sent(1)
	o.refusedTo(d, o.through(before, verbs.OpRead, 0, 8))
}

// windowUnbind: a bind of no bytes makes the key invalid, and the window can be bound again.
func windowUnbind(e *env) {
	d := e.rc(nil)
	o := d.window(verbs.MWType1)
	o.binds(d.b, o.part(windowRightsAll))
	key := o.binds(d.b, verbs.MWBind{MR: o.region.MR})
	o.binds(d.b, o.part(windowRightsAll))
	o.moves(d, o.w.RKey())
	o.binds(d.b, verbs.MWBind{MR: o.region.MR})
	o.refusedTo(d, o.through(key, verbs.OpRead, 0, 8))
	d = e.rc(nil)
	d.am = o.am
	o.refusedTo(d, o.through(o.w.RKey(), verbs.OpRead, 0, 8))
}

// windowAnyQP: the peers of all queue pairs of the domain may use a window of type 1, and any of
// these may bind it.
func windowAnyQP(e *env) {
	d, other := e.rc(nil), e.rc(nil)
	o := d.window(verbs.MWType1)
	o.binds(d.b, o.part(windowRightsAll))
	o.moves(d, o.w.RKey())
	o.moves(other, o.w.RKey())
	o.binds(other.b, o.part(windowRightsAll))
	o.moves(d, o.w.RKey())
}

// windowOneQP: the peers of other queue pairs may not use a window of type 2.
func windowOneQP(e *env) {
	d, other := e.rc(nil), e.rc(nil)
	o := d.window(verbs.MWType2)
	o.binds(d.b, o.part(windowRightsAll))
	o.refusedTo(other, o.through(o.w.RKey(), verbs.OpRead, 0, 8))
	o.moves(d, o.w.RKey())
}

// bindFails wants a bind to be refused, or to end with an error.
func (o *opened) bindFails(q *qp, b verbs.MWBind, what string) {
	o.Helper()
	if err := verbs.BindWindow(q.QP, 99, verbs.SendSignaled, o.w, b); err != nil {
		o.refused(err, what)
		return
	}
	q.sentAs(99, verbs.WCMWBindErr)
	q.fails()
}

// windowBoundAlready: a window of type 2 must be invalidated before it is bound again.
func windowBoundAlready(e *env) {
	d, other := e.rc(nil), e.rc(nil)
	o := d.window(verbs.MWType2)
	o.binds(d.b, o.part(windowRightsAll))
	key := o.w.RKey()
	o.bindFails(other.b, o.part(windowRightsAll), "bound already")
	o.moves(d, key)
}

// invalidation is a request of the own device that makes key invalid.
func invalidation(id uint64, key uint32) verbs.SendWR {
	w := request(id, verbs.OpLocalInv)
	w.Imm = key
	return w
}

func windowLocalInvalidate(e *env) {
	d := e.rc(nil)
	o := d.window(verbs.MWType2)
	o.binds(d.b, o.part(windowRightsAll))
	d.b.send(invalidation(5, o.w.RKey()))
	require.Equal(e, verbs.WCLocalInv.String(), d.b.sent(5).Op.String())
	key := o.binds(d.b, o.part(windowRightsAll))
	o.moves(d, o.w.RKey())
	o.refusedTo(d, o.through(key, verbs.OpRead, 0, 8))
}

// windowSendInvalidate: a message of the peer makes the key invalid.
func windowSendInvalidate(e *env) {
	d := e.rc(nil)
	o := d.window(verbs.MWType2)
	o.binds(d.b, o.part(windowRightsAll))
	d.b.receive(7, d.bm.sge(0, 64))
	w := request(5, verbs.OpSendInv, d.am.sge(0, 8))
	w.Imm = o.w.RKey()
	d.a.send(w)
	d.a.sent(5)
	c := d.b.received(7)
	require.Equal(e, verbs.WCWithInv, c.Flags&^verbs.WCGRH)
	require.Equal(e, o.w.RKey(), c.Imm)
	require.NoError(e, o.region.Close(), "nothing is bound to it")
	o.region = e.sides[1].bindable(everything)
	e.closes("window", o.w.Close) // before that region
	o.binds(d.b, o.part(windowRightsAll))
	o.moves(d, o.w.RKey())
	o.refusedTo(d, o.through(w.Imm, verbs.OpRead, 0, 8))
}

// windowType1Stays: requests do not make the key of a window of type 1 invalid.
func windowType1Stays(e *env) {
	d, other := e.rc(nil), e.rc(nil)
	o := d.window(verbs.MWType1)
	o.binds(d.b, o.part(windowRightsAll))
	if n, _ := d.b.PostSend([]verbs.SendWR{invalidation(5, o.w.RKey())}); n == 1 {
		d.b.sentAs(5, verbs.WCMWBindErr)
	}
	o.moves(other, o.w.RKey())
}

// windowBadBind: what a window cannot be bound to.
func windowBadBind(e *env) {
	s := e.sides[1]
	for name, change := range map[string]func(o *opened, b *verbs.MWBind){
		"without the right to bind": func(_ *opened, b *verbs.MWBind) {
			m := s.mem(windowLen, everything)
			b.MR, b.Addr = m.MR, m.Addr()
		},
		"writing needs the local right": func(_ *opened, b *verbs.MWBind) {
			m := s.bindable(verbs.RemoteRead)
			b.MR, b.Addr = m.MR, m.Addr()
		},
		"before the region": func(o *opened, b *verbs.MWBind) { b.Addr = o.region.Addr() - 1 },
		"beyond its end":    func(o *opened, b *verbs.MWBind) { b.Addr = o.region.Addr() + 3*windowLen + 1 },
		"too long":          func(_ *opened, b *verbs.MWBind) { b.Len = 1 << 40 },
		"around the end":    func(_ *opened, b *verbs.MWBind) { b.Len = ^uint64(0) },
		"a local right":     func(_ *opened, b *verbs.MWBind) { b.Access = verbs.LocalWrite | verbs.BindMW | 1<<30 },
	} {
		d := e.rc(nil)
		o := d.window(verbs.MWType1)
		b := o.part(windowRightsAll)
		change(o, &b)
		o.bindFails(d.b, b, name)
	}
	d := e.rc(nil)
	o := d.window(verbs.MWType1)
	w, err := verbs.AllocMW(s.domain(), verbs.MWType1)
	require.NoError(e, err)
	e.Cleanup(func() { require.NoError(e, w.Close()) })
	o.w = w
	o.bindFails(d.b, o.part(windowRightsAll), "of another domain")
	two := e.rc(nil)
	t := two.window(verbs.MWType2)
	t.bindFails(two.b, verbs.MWBind{MR: t.region.MR}, "no bytes")
	_, err = verbs.AllocMW(s.pd, 3)
	require.Error(e, err, "type 3")
}

// windowRegionBusy: a region cannot be closed or registered anew while a window is bound to it.
func windowRegionBusy(e *env) {
	d := e.rc(nil)
	o := d.window(verbs.MWType1)
	o.binds(d.b, o.part(windowRightsAll))
	e.busy(o.region.Close(), "memory with a window")
	o.moves(d, o.w.RKey())
	o.binds(d.b, verbs.MWBind{MR: o.region.MR})
	require.NoError(e, o.region.Close())
}

// windowRegionGone: a bind whose region is closed before its turn fails.
func windowRegionGone(e *env) {
	d := e.rc(nil)
	o := d.window(verbs.MWType1)
	d.b.to(verbs.StateSQD, nil)
	require.NoError(e, verbs.BindWindow(d.b.QP, 5, verbs.SendSignaled, o.w, o.part(windowRightsAll)))
	e.settle()
	d.b.nothing("a bind behind the drained queue")
	if err := o.region.Close(); err != nil { // or the region is taken from the post on
		e.busy(err, "memory with a posted bind")
		require.NoError(e, d.b.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
		d.b.sent(5)
		return
	}
	require.NoError(e, d.b.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
	d.b.sentAs(5, verbs.WCMWBindErr)
	d.b.fails()
}

func windowDomainBusy(e *env) {
	s := e.sides[1]
	pd, err := s.AllocPD()
	require.NoError(e, err)
	w, err := verbs.AllocMW(pd, verbs.MWType1)
	if err != nil {
		require.NoError(e, pd.Close())
	}
	e.unlessSupported(err, "a memory window")
	e.busy(pd.Close(), "domain with a window")
	require.NoError(e, w.Close())
	require.NoError(e, w.Close(), "again")
	require.NoError(e, pd.Close())
}

// windowClosed: a peer has no access with the key of a closed window, and its region is free.
func windowClosed(e *env) {
	d := e.rc(nil)
	o := d.window(verbs.MWType1)
	o.binds(d.b, o.part(windowRightsAll))
	o.moves(d, o.w.RKey())
	key := o.w.RKey()
	require.NoError(e, o.w.Close())
	require.Error(e, verbs.BindWindow(d.b.QP, 5, verbs.SendSignaled, o.w, o.part(windowRightsAll)))
	for range 16 { // another window gets another key
		w, err := verbs.AllocMW(e.sides[1].pd, verbs.MWType1)
		require.NoError(e, err)
		require.NotEqual(e, key, w.RKey())
		require.NoError(e, w.Close())
	}
	o.refusedTo(d, o.through(key, verbs.OpRead, 0, 8))
	require.NoError(e, o.region.Close())
}

// windowOrder: a bind has its place among the requests of its queue pair, and a message behind it
// can carry the key.
func windowOrder(e *env) {
	d := e.rc(nil)
	o := d.window(verbs.MWType2)
	for i := range uint64(8) {
		d.a.receive(20+i, d.am.sge(4096, 64))
		d.b.send(at(request(1, verbs.OpWrite, d.bm.sge(0, 3000)), d.am, 8192))
		require.NoError(e, verbs.BindWindow(d.b.QP, 2, verbs.SendSignaled, o.w, o.part(windowRightsAll)))
		d.b.send(request(3, verbs.OpSend, d.bm.sge(0, 8)))
		d.a.received(20 + i)
		o.moves(d, o.w.RKey())
		d.b.send(invalidation(4, o.w.RKey()))
		for id := uint64(1); id <= 4; id++ {
			d.b.sent(id)
		}
	}
	require.NoError(e, verbs.BindWindow(d.b.QP, 5, 0, o.w, o.part(windowRightsAll)))
	d.b.send(request(6, verbs.OpWrite))
	d.b.sent(6) // the bind was not signalled
}

// windowByState: a bind needs a queue pair that can send, and is flushed like any request.
func windowByState(e *env) {
	d := e.unconnected(verbs.RC, nil)
	o := d.window(verbs.MWType1)
	bind := func(id uint64) error {
		return verbs.BindWindow(d.b.QP, id, verbs.SendSignaled, o.w, o.part(windowRightsAll))
	}
	key := o.w.RKey()
	for _, s := range []verbs.QPState{verbs.StateReset, verbs.StateInit, verbs.StateRTR} {
		if s != verbs.StateReset {
			d.b.to(s, d.a)
		}
		e.refused(bind(1), "bind in state %v", s)
		require.Equal(e, key, o.w.RKey())
	}
	d.b.to(verbs.StateErr, nil)
	require.NoError(e, bind(2))
	d.b.sentAs(2, verbs.WCFlushErr)
	require.NoError(e, o.region.Close(), "nothing is bound to it")
}

// windowNoLocalUse: the key is for peers alone.
func windowNoLocalUse(e *env) {
	d := e.rc(nil)
	o := d.window(verbs.MWType1)
	o.binds(d.b, o.part(windowRightsAll))
	sg := o.region.sge(windowFrom, 8)
	sg.LKey = o.w.RKey()
	d.b.send(at(request(5, verbs.OpWrite, sg), d.am, 0))
	d.b.sentAs(5, verbs.WCLocProtErr)
}

// windowUnreliable: an unreliable connection binds windows too.
func windowUnreliable(e *env) {
	d := e.uc(nil)
	o := d.window(verbs.MWType2)
	o.binds(d.b, o.part(windowRightsAll))
	want := append([]byte{}, d.am.fill(3000, 6)...)
	d.b.receive(7)
	w := o.through(o.w.RKey(), verbs.OpWriteImm, 0, 3000)
	d.a.send(w)
	d.a.sent(1)
	d.b.received(7)
	require.Equal(e, want, o.region.buf[windowFrom:][:3000])
	d.b.send(invalidation(5, o.w.RKey()))
	d.b.sent(5)
	clear(o.region.buf)
	d.a.send(w)
	d.a.sent(1)
	e.settle()
	require.Equal(e, make([]byte, len(o.region.buf)), o.region.buf)
}

// windowDatagram: a queue pair of datagrams binds none.
func windowDatagram(e *env) {
	d := e.ud(nil)
	o := d.window(verbs.MWType1)
	require.Error(e, verbs.BindWindow(d.b.QP, 1, verbs.SendSignaled, o.w, o.part(windowRightsAll)))
	d.a.refuses(verbs.SendWR{ID: 1, Op: verbs.OpBindMW}, "a bind without a window")
	c := e.rc(nil)
	c.a.refuses(verbs.SendWR{ID: 1, Op: verbs.OpBindMW}, "a bind without a window")
}

// windowLimit: a device that has windows says how many.
func windowLimit(e *env) {
	w, err := verbs.AllocMW(e.sides[0].pd, verbs.MWType1)
	e.unlessSupported(err, "a memory window")
	require.NoError(e, w.Close())
	require.Positive(e, e.sides[0].Attr().MaxMW)
	require.NotErrorIs(e, err, ucs.ErrNoResource)
}
