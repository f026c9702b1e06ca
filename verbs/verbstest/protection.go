package verbstest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

var protectionCases = []testCase{
	{"local", 0, protectionLocal},
	{"local-target", 0, protectionLocalTarget},
	{"receive", 0, protectionReceive},
	{"receive-too-short", 0, protectionReceiveTooShort},
	{"remote", 0, protectionRemote},
	{"remote-range", 0, protectionRemoteRange},
	{"remote-rights", 0, protectionRemoteRights},
	{"qp-rights", 0, protectionQPRights},
	{"no-reads-served", 0, protectionNoReads},
	{"write-is-whole-or-not", 0, protectionLongWrite},
	{"others-unharmed", 0, protectionOthers},
}

// protectionLocal: pieces must lie in memory of the queue pair's domain.
func protectionLocal(e *env) {
	s := e.sides[0]
	other := s.memOf(s.domain(), make([]byte, 64), verbs.MRConfig{Access: everything})
	for name, sg := range map[string]func(m *mem) verbs.SGE{
		"no key":           func(m *mem) verbs.SGE { return verbs.SGE{Addr: m.Addr(), Len: 8} },
		"wrong key":        func(m *mem) verbs.SGE { return verbs.SGE{Addr: m.Addr(), Len: 8, LKey: m.LKey() ^ 1} },
		"before it":        func(m *mem) verbs.SGE { return verbs.SGE{Addr: m.Addr() - 1, Len: 8, LKey: m.LKey()} },
		"beyond its end":   func(m *mem) verbs.SGE { return m.sge(len(m.buf)-7, 8) },
		"far away":         func(m *mem) verbs.SGE { return verbs.SGE{Addr: ^uint64(0) - 3, Len: 8, LKey: m.LKey()} },
		"longer than it":   func(m *mem) verbs.SGE { return m.sge(0, len(m.buf)+1) },
		"of another":       func(*mem) verbs.SGE { return other.sge(0, 8) },
		"of another's key": func(m *mem) verbs.SGE { return verbs.SGE{Addr: m.Addr(), Len: 8, LKey: other.LKey()} },
	} {
		for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpSend, verbs.OpRead} {
			d := e.rc(nil)
			d.b.receive(1, d.bm.sge(0, duoMem))
			d.a.send(at(request(2, op, sg(s.mem(4096, everything))), d.bm, 0))
			w := d.a.next(d.a.sendCQ)
			assert.Equal(e, verbs.WCLocProtErr.String(), w.Status.String(), "%v: %s", op, name)
			d.a.fails()
		}
	}
}

// protectionLocalTarget: what a read fetches needs memory that may be written;
// what is sent does not.
func protectionLocalTarget(e *env) {
	d := e.rc(nil)
	m := e.sides[0].mem(64, 0)
	d.a.send(at(request(1, verbs.OpWrite, m.sge(0, 8)), d.bm, 0))
	d.a.sent(1)
	d.a.send(at(request(2, verbs.OpRead, m.sge(0, 8)), d.bm, 0))
	d.a.sentAs(2, verbs.WCLocProtErr)
	d.a.fails()
}

// protectionReceive: a message into memory that is not there fails both ends, each
// with its own reason.
func protectionReceive(e *env) {
	for name, sg := range map[string]func(e *env, m *mem) verbs.SGE{
		"wrong key": func(_ *env, m *mem) verbs.SGE { return verbs.SGE{Addr: m.Addr(), Len: 64, LKey: m.LKey() ^ 1} },
		"beyond":    func(_ *env, m *mem) verbs.SGE { return m.sge(len(m.buf)-4, 64) },
		"read only": func(e *env, _ *mem) verbs.SGE { return e.sides[1].mem(64, verbs.RemoteRead).sge(0, 64) },
	} {
		d := e.rc(nil)
		d.b.receive(1, sg(e, d.bm))
		d.b.receive(2, d.bm.sge(0, 64))
		d.a.send(request(3, verbs.OpSend, d.am.sge(0, 32)))
		w := d.b.next(d.b.recvCQ)
		assert.Equal(e, verbs.WCLocProtErr.String(), w.Status.String(), name)
		d.b.receivedAs(2, verbs.WCFlushErr)
		d.a.sentAs(3, verbs.WCRemOpErr)
		d.a.fails()
		d.b.fails()
	}
}

// protectionReceiveTooShort: the same for a receive that is too short, by one
// byte, by packets, or without pieces.
func protectionReceiveTooShort(e *env) {
	for _, c := range []struct{ room, n int }{{7, 8}, {0, 1}, {1023, 1024}, {1024, 1025}, {2500, 5000}} {
		d := e.rc(nil)
		d.b.receive(1, d.bm.sge(0, c.room))
		d.b.receive(2, d.bm.sge(0, 64))
		d.a.send(request(3, verbs.OpSend, d.am.sge(0, c.n)))
		d.b.receivedAs(1, verbs.WCLocLenErr)
		d.b.receivedAs(2, verbs.WCFlushErr)
		d.a.sentAs(3, verbs.WCRemInvReqErr)
		d.a.fails()
		d.b.fails()
		require.Zero(e, d.bm.buf[c.room], "beyond the receive")
	}
}

// oneSided are the operations on remote memory.
var oneSided = []verbs.Opcode{verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead, verbs.OpFetchAdd, verbs.OpCompareSwap}

// denied has w fail with a remote access error, and both ends with it.
func (d *duo) denied(w verbs.SendWR, what string, or ...verbs.WCStatus) {
	d.Helper()
	d.b.receive(1, d.bm.sge(1000, 8))
	d.a.send(w, d.write(98))
	got := d.a.next(d.a.sendCQ)
	require.Contains(d, append(or, verbs.WCRemAccessErr), got.Status, "%v: %s", w.Op, what)
	d.a.sentAs(98, verbs.WCFlushErr)
	d.b.receivedAs(1, verbs.WCFlushErr)
	d.a.fails()
	d.b.fails()
}

// protectionRemote: a key must be one of the queue pair's domain.
func protectionRemote(e *env) {
	s := e.sides[1]
	other := s.memOf(s.domain(), make([]byte, 64), verbs.MRConfig{Access: everything})
	for _, op := range oneSided {
		for name, change := range map[string]func(*verbs.SendWR){
			"no key":         func(w *verbs.SendWR) { w.RKey = 0 },
			"wrong key":      func(w *verbs.SendWR) { w.RKey ^= 1 },
			"another place":  func(w *verbs.SendWR) { w.RKey ^= 1 << 8 },
			"another domain": func(w *verbs.SendWR) { w.RKey, w.Remote = other.RKey(), other.Addr() },
		} {
			d := e.rc(nil)
			w := at(request(2, op, d.am.sge(0, 8)), d.bm, 0)
			change(&w)
			d.denied(w, name)
		}
	}
}

// protectionRemoteRange: every byte must lie in it.
func protectionRemoteRange(e *env) {
	m := e.sides[1].mem(64, everything)
	for _, op := range oneSided {
		for _, off := range []uint64{^uint64(7), 64, 1 << 40, ^m.Addr() - 7} {
			d := e.rc(nil)
			w := at(request(2, op, d.am.sge(0, 8)), m, 0)
			w.Remote += off
			d.denied(w, "beyond")
		}
	}
	for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead} {
		for _, c := range [][2]int{{60, 8}, {-1, 8}, {0, 65}, {1, 64}, {0, 5000}} {
			d := e.rc(nil)
			d.denied(at(request(2, op, d.am.sge(0, c[1])), m, c[0]), "crosses the end")
		}
	}
	require.Equal(e, make([]byte, 60), m.buf[:60])
}

// protectionRemoteRights: memory has rights of its own.
func protectionRemoteRights(e *env) {
	needs := map[verbs.Opcode]verbs.Access{
		verbs.OpWrite: verbs.RemoteWrite, verbs.OpWriteImm: verbs.RemoteWrite, verbs.OpRead: verbs.RemoteRead,
		verbs.OpFetchAdd: verbs.RemoteAtomic, verbs.OpCompareSwap: verbs.RemoteAtomic,
	}
	for _, op := range oneSided {
		d := e.rc(nil)
		d.b.receive(1, d.bm.sge(0, 8))
		right := e.sides[1].mem(8, verbs.LocalWrite|needs[op])
		d.a.send(at(request(1, op, d.am.sge(0, 8)), right, 0))
		d.a.sent(1)
		d = e.rc(nil)
		m := e.sides[1].mem(8, everything&^needs[op])
		d.denied(at(request(2, op, d.am.sge(0, 8)), m, 0), "memory without the right")
	}
}

// protectionQPRights: so has a queue pair.
func protectionQPRights(e *env) {
	for op, need := range map[verbs.Opcode]verbs.Access{
		verbs.OpWrite: verbs.RemoteWrite, verbs.OpWriteImm: verbs.RemoteWrite, verbs.OpRead: verbs.RemoteRead,
		verbs.OpFetchAdd: verbs.RemoteAtomic, verbs.OpCompareSwap: verbs.RemoteAtomic,
	} {
		d := e.rc(func(_, b *setup) { b.access = need })
		d.b.receive(1, d.bm.sge(0, 8))
		d.a.send(at(request(1, op, d.am.sge(0, 8)), d.bm, 0))
		d.a.sent(1)
		d = e.rc(func(_, b *setup) { b.access = everything &^ need })
		d.denied(at(request(2, op, d.am.sge(0, 8)), d.bm, 0), "queue pair without the right", verbs.WCRemInvReqErr)
		require.Equal(e, make([]byte, 8), d.bm.buf[:8])
	}
}

// protectionNoReads: an end that serves no reads refuses them.
func protectionNoReads(e *env) {
	for _, op := range []verbs.Opcode{verbs.OpRead, verbs.OpFetchAdd} {
		d := e.rc(func(_, b *setup) { b.serves = 0 })
		d.denied(at(request(2, op, d.am.sge(0, 8)), d.bm, 0), "none served", verbs.WCRemInvReqErr)
	}
}

// protectionLongWrite: a write that would cross the end changes nothing, the
// beginning included.
func protectionLongWrite(e *env) {
	d := e.rc(nil)
	m := e.sides[1].mem(4096, everything)
	d.am.fill(5000, 1)
	d.denied(at(request(2, verbs.OpWrite, d.am.sge(0, 5000)), m, 0), "too long")
	require.Equal(e, make([]byte, 4096), m.buf)
}

// protectionOthers: a queue pair that fails harms no other.
func protectionOthers(e *env) {
	d, good := e.rc(nil), e.rc(nil)
	d.denied(d.badWrite(1), "wrong key")
	good.stream(30, 500)
}
