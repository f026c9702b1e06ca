package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

var memoryCases = []testCase{
	{"access", 0, memoryAccess},
	{"bad-access", 0, memoryBadAccess},
	{"attributes", 0, memoryAttributes},
	{"iova", 0, memoryIOVA},
	{"zero-based", 0, memoryZeroBased},
	{"keys-vary", 0, memoryKeysVary},
	{"stale-remote-key", 0, memoryStaleRemote},
	{"stale-local-key", 0, memoryStaleLocal},
	{"overlap", 0, memoryOverlap},
	{"relaxed-ordering", 0, memoryRelaxed},
	{"local-invalidate", 0, memoryLocalInvalidate},
	{"not-revocable", 0, memoryNotRevocable},
	{"reregister", 0, memoryReregister},
	{"reregister-access", 0, memoryReregisterAccess},
	{"reregister-domain", 0, memoryReregisterDomain},
	{"reregister-bad", 0, memoryReregisterBad},
}

// memoryAccess: every legal combination, with relaxed ordering too, which changes
// nothing that is asserted elsewhere.
func memoryAccess(e *env) {
	for a := range verbs.Access(16) {
		if a&(verbs.RemoteWrite|verbs.RemoteAtomic) != 0 && a&verbs.LocalWrite == 0 {
			continue
		}
		e.sides[0].mem(64, a)
		e.sides[0].mem(64, a|verbs.RelaxedOrdering)
	}
}

func memoryBadAccess(e *env) {
	for _, a := range []verbs.Access{verbs.RemoteWrite, verbs.RemoteAtomic, verbs.RemoteRead | verbs.RemoteWrite, 1 << 30, 1 << 15} {
		_, err := e.sides[0].pd.Register(make([]byte, 64), verbs.MRConfig{Access: a})
		require.Error(e, err, "access %v", a)
		if a < 1<<4 {
			e.refused(err, "access %v", a)
		}
	}
}

func memoryAttributes(e *env) {
	buf := make([]byte, 100)
	m := e.sides[0].memOf(e.sides[0].pd, buf, verbs.MRConfig{Access: everything})
	require.Len(e, m.Bytes(), 100)
	require.Same(e, &buf[0], &m.Bytes()[0])
	require.NotZero(e, m.Addr())
	n := e.sides[0].memOf(e.sides[0].pd, buf[8:], verbs.MRConfig{Access: everything})
	require.Equal(e, m.Addr()+8, n.Addr(), "addresses are the process's")
}

// memoryIOVA: keys name memory by the address that was given.
func memoryIOVA(e *env) {
	const base = 0x7000_0000_1234
	d := e.rc(nil)
	l := e.sides[0].memOf(e.sides[0].pd, make([]byte, 4096), verbs.MRConfig{Access: everything, IOVA: base, HasIOVA: true})
	r := e.sides[1].memOf(e.sides[1].pd, make([]byte, 4096), verbs.MRConfig{Access: everything, IOVA: 2 * base, HasIOVA: true})
	require.EqualValues(e, base, l.Addr())
	d.through(l, r)
}

func memoryZeroBased(e *env) {
	d := e.rc(nil)
	l, err := e.sides[0].pd.Register(make([]byte, 4096), verbs.MRConfig{Access: everything | verbs.ZeroBased})
	e.unlessSupported(err, "zero-based memory")
	e.closes("mr", l.Close)
	r := e.sides[1].memOf(e.sides[1].pd, make([]byte, 4096), verbs.MRConfig{Access: everything | verbs.ZeroBased})
	require.Zero(e, l.Addr())
	require.Zero(e, r.Addr())
	d.through(&mem{MR: l, buf: l.Bytes()}, r)
}

// through moves data from l to r and back, and touches their bounds.
func (d *duo) through(l, r *mem) {
	d.Helper()
	want := append([]byte{}, l.fill(4096, 5)...)
	d.a.send(at(request(1, verbs.OpWrite, l.sge(0, 4096)), r, 0))
	d.a.sent(1)
	require.Equal(d, want, r.buf)
	clear(l.buf)
	d.a.send(at(request(2, verbs.OpRead, l.sge(96, 4000)), r, 96))
	d.a.sent(2)
	require.Equal(d, want[96:], l.buf[96:])
	d.a.send(at(request(3, verbs.OpWrite, l.sge(0, 8)), r, 4089))
	d.a.sentAs(3, verbs.WCRemAccessErr)
}

// memoryKeysVary: a key does not come back when its place does.
func memoryKeysVary(e *env) {
	s := e.sides[0]
	seen := map[uint32]bool{}
	for range 64 {
		m, err := s.pd.Register(make([]byte, 64), verbs.MRConfig{Access: everything})
		require.NoError(e, err)
		require.False(e, seen[m.RKey()], "key %#x again", m.RKey())
		seen[m.RKey()] = true
		require.NoError(e, m.Close())
	}
}

// memoryStaleRemote: a key is worth nothing from Close on, also where another
// region took its place.
func memoryStaleRemote(e *env) {
	d := e.rc(nil)
	buf := make([]byte, 64)
	m, err := e.sides[1].pd.Register(buf, verbs.MRConfig{Access: everything})
	require.NoError(e, err)
	old := &mem{MR: m, buf: buf}
	w := at(request(1, verbs.OpWrite, d.am.sge(0, 8)), old, 0)
	d.am.fill(8, 1)
	d.a.send(w)
	d.a.sent(1)
	require.NoError(e, m.Close())
	e.sides[1].memOf(e.sides[1].pd, buf, verbs.MRConfig{Access: everything})
	clear(buf)
	d.a.send(w)
	d.a.sentAs(1, verbs.WCRemAccessErr)
	require.Equal(e, make([]byte, 64), buf)
}

func memoryStaleLocal(e *env) {
	d := e.rc(nil)
	buf := make([]byte, 64)
	m, err := e.sides[0].pd.Register(buf, verbs.MRConfig{Access: everything})
	require.NoError(e, err)
	old := &mem{MR: m, buf: buf}
	w := at(request(1, verbs.OpWrite, old.sge(0, 8)), d.bm, 0)
	require.NoError(e, m.Close())
	e.sides[0].memOf(e.sides[0].pd, buf, verbs.MRConfig{Access: everything})
	d.a.send(w)
	d.a.sentAs(1, verbs.WCLocProtErr)
}

// memoryOverlap: the same bytes may be registered twice, with rights of their own.
func memoryOverlap(e *env) {
	d := e.rc(nil)
	buf := make([]byte, 64)
	s := e.sides[1]
	closed := s.memOf(s.pd, buf, verbs.MRConfig{Access: verbs.LocalWrite})
	open := s.memOf(s.pd, buf, verbs.MRConfig{Access: everything})
	require.NotEqual(e, closed.RKey(), open.RKey())
	want := d.am.fill(8, 9)
	d.a.send(at(request(1, verbs.OpWrite, d.am.sge(0, 8)), open, 0))
	d.a.sent(1)
	require.Equal(e, want, closed.buf[:8])
	d.a.send(at(request(2, verbs.OpWrite, d.am.sge(0, 8)), closed, 0))
	d.a.sentAs(2, verbs.WCRemAccessErr)
}

// memoryRelaxed: the right to reorder changes nothing that a program may rely on.
func memoryRelaxed(e *env) {
	d := e.rc(nil)
	m := e.sides[0].mem(4096, everything|verbs.RelaxedOrdering)
	n := e.sides[1].mem(4096, everything|verbs.RelaxedOrdering)
	d.through(m, n)
}

// memoryLocalInvalidate: a request makes a key of the own device invalid, after
// all requests before it.
func memoryLocalInvalidate(e *env) {
	d := e.rc(nil)
	m := e.sides[0].revocable(64)
	w := request(2, verbs.OpLocalInv)
	w.Imm = m.RKey()
	if n, st := d.a.PostSend([]verbs.SendWR{at(request(1, verbs.OpWrite, m.sge(0, 8)), d.bm, 0), w}); n < 2 {
		e.notApplicable("no local invalidation: " + st.String())
	}
	d.a.sent(1)
	require.Equal(e, verbs.WCLocalInv.String(), d.a.sent(2).Op.String())
	d.a.send(at(request(3, verbs.OpWrite, m.sge(0, 8)), d.bm, 0))
	d.a.sentAs(3, verbs.WCLocProtErr)
}

// memoryNotRevocable: memory that was registered as usual keeps its key, whatever
// requests and peers say.
func memoryNotRevocable(e *env) {
	d := e.rc(nil)
	w := request(1, verbs.OpLocalInv)
	w.Imm = d.am.RKey()
	if n, _ := d.a.PostSend([]verbs.SendWR{w}); n == 1 {
		d.a.sentAs(1, verbs.WCMWBindErr)
	}
	d = e.rc(nil)
	d.b.receive(2, d.bm.sge(0, 64))
	w = request(3, verbs.OpSendInv, d.am.sge(0, 8))
	w.Imm = d.bm.RKey()
	if n, _ := d.a.PostSend([]verbs.SendWR{w}); n == 1 {
		d.a.sentAs(3, verbs.WCRemAccessErr, verbs.WCRemInvReqErr, verbs.WCRemOpErr)
		d.b.fails()
	}
	o := e.rc(nil)
	for _, m := range []*mem{d.am, d.bm} {
		q, far := o.a, o.bm
		if m == d.bm {
			q, far = o.b, o.am
		}
		q.send(at(request(4, verbs.OpWrite, m.sge(0, 8)), far, 0))
		q.sent(4)
	}
}

// reregistered is memory of a side, and changes its registration.
func (s *side) reregistered(m *mem, pd verbs.PD, buf []byte, access verbs.Access) *mem {
	s.env.Helper()
	s.env.unlessSupported(verbs.Reregister(m.MR, pd, buf, verbs.MRConfig{Access: access}), "another registration")
	m.buf = buf
	return m
}

// memoryReregister: a region names other memory, under its key or another one; the key before is
// worth nothing then. A closed region is open again.
func memoryReregister(e *env) {
	d := e.rc(nil)
	for _, s := range e.sides {
		m := s.mem(4096, everything)
		for i := range 4 {
			if i == 2 {
				require.NoError(e, m.Close())
			}
			before := append([]byte{}, m.buf...)
			old := m.buf
			s.reregistered(m, s.pd, make([]byte, 4096), everything)
			require.Same(e, &m.buf[0], &m.Bytes()[0])
			w := at(request(1, verbs.OpWrite, m.sge(0, 64)), d.bm, 0)
			q := d.a
			if s == e.sides[1] {
				q, w.Remote, w.RKey = d.b, d.am.Addr(), d.am.RKey()
			}
			m.fill(64, byte(i))
			q.send(w)
			q.sent(1)
			require.Equal(e, before, old, "the memory before")
		}
	}
	m := e.sides[1].mem(4096, everything)
	old := *m
	key := m.RKey()
	e.sides[1].reregistered(m, e.sides[1].pd, make([]byte, 4096), everything)
	want := append([]byte{}, d.am.fill(64, 9)...)
	d.a.send(at(request(1, verbs.OpWrite, d.am.sge(0, 64)), m, 0))
	d.a.sent(1)
	require.Equal(e, want, m.buf[:64])
	w := at(request(2, verbs.OpWrite, d.am.sge(0, 64)), m, 0)
	if m.RKey() == key {
		return
	}
	w.RKey = key
	d.a.send(w)
	d.a.sentAs(2, verbs.WCRemAccessErr)
	require.Equal(e, make([]byte, 4096), old.buf)
}

// memoryReregisterAccess: the new rights hold.
func memoryReregisterAccess(e *env) {
	d := e.rc(nil)
	m := e.sides[1].mem(64, everything)
	e.sides[1].reregistered(m, e.sides[1].pd, m.buf, verbs.LocalWrite|verbs.RemoteRead)
	d.a.send(at(request(1, verbs.OpRead, d.am.sge(0, 8)), m, 0))
	d.a.sent(1)
	d.a.send(at(request(2, verbs.OpWrite, d.am.sge(0, 8)), m, 0))
	d.a.sentAs(2, verbs.WCRemAccessErr)
}

// memoryReregisterDomain: memory that went to another domain is out of reach for the queue pairs
// of the one before, which can be closed.
func memoryReregisterDomain(e *env) {
	s := e.sides[1]
	d := e.rc(nil)
	from, err := s.AllocPD()
	require.NoError(e, err)
	m := s.memOf(from, make([]byte, 64), verbs.MRConfig{Access: everything})
	e.busy(from.Close(), "domain with memory")
	s.reregistered(m, s.pd, m.buf, everything)
	require.NoError(e, from.Close())
	d.a.send(at(request(1, verbs.OpWrite, d.am.sge(0, 8)), m, 0))
	d.a.sent(1)
	other := s.domain()
	s.reregistered(m, other, m.buf, everything)
	e.Cleanup(func() { _ = m.Close() }) // before its domain
	d.a.send(at(request(2, verbs.OpWrite, d.am.sge(0, 8)), m, 0))
	d.a.sentAs(2, verbs.WCRemAccessErr)
}

// memoryReregisterBad: a change that is refused leaves the region as it was.
func memoryReregisterBad(e *env) {
	d := e.rc(nil)
	s := e.sides[1]
	m := s.reregistered(s.mem(64, everything), s.pd, make([]byte, 64), everything)
	key := m.RKey()
	for _, access := range []verbs.Access{verbs.RemoteWrite, verbs.RemoteAtomic} {
		e.refused(verbs.Reregister(m.MR, s.pd, make([]byte, 64), verbs.MRConfig{Access: access}), "access %v", access)
	}
	e.refused(verbs.Reregister(m.MR, e.sides[0].pd, m.buf, verbs.MRConfig{Access: everything}), "domain of another device")
	e.refused(verbs.Reregister(m.MR, s.pd, nil, verbs.MRConfig{Access: everything}), "no bytes")
	require.Equal(e, key, m.RKey())
	want := append([]byte{}, d.am.fill(8, 3)...)
	d.a.send(at(request(1, verbs.OpWrite, d.am.sge(0, 8)), m, 0))
	d.a.sent(1)
	require.Equal(e, want, m.buf[:8])
}
