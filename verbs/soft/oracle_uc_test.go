package soft

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// unreliableEnd is one end of an unreliable connection. Each of its messages is received as whole,
// several times if the network duplicates it, or not at all. Each write has memory of its own at the
// peer, so that a part of a lost one can be told from bytes of others. A receive may have bytes of
// lost messages behind the end of the one that it is for.
type unreliableEnd struct {
	o     *oracle
	name  string
	dev   *oracleDev
	peer  *unreliableEnd
	qp    verbs.QP
	mtu   int
	mem   *memory // of sent and received data
	at    *memory // that the peer writes
	msgs  []*unreliableMsg
	next  int // the first message that has not ended
	recvs map[uint64]*recvBuf
}

// unreliableMsg is a message and what must come of it, if anything.
type unreliableMsg struct {
	op       verbs.Opcode
	data     []byte
	place    []byte // at the peer, of a write
	imm      uint32
	signaled bool
	refused  bool // by the key or the range: the peer drops it
	came     int
}

const (
	unreliableSendID = 1 << 37
	unreliableRecvID = 1 << 38
	unreliableMem    = 512 << 10
	unreliableDepth  = 16
)

func (o *oracle) openUnreliable() {
	mtu := pick(o, verbs.MTU256, verbs.MTU512, verbs.MTU1024)
	var e [2]*unreliableEnd
	for side := range e {
		v := pick(o, o.devs...)
		x := &unreliableEnd{
			o: o, name: fmt.Sprintf("uc %c", 'a'+side), dev: v, mtu: mtu.Bytes(), recvs: make(map[uint64]*recvBuf),
			mem: v.memory(o, v.pd, unreliableMem, verbs.LocalWrite), at: v.memory(o, v.pd, unreliableMem, allAccess),
		}
		var err error
		x.qp, err = v.domain(o).CreateQP(verbs.QPConfig{
			Type: verbs.UC, SendCQ: v.cq, RecvCQ: v.cq,
			Caps: verbs.QPCaps{MaxSend: unreliableDepth, MaxRecv: rqDepth, MaxSendSGE: verbs.MaxSGE, MaxRecvSGE: verbs.MaxSGE},
		})
		o.must(err)
		v.open = append(v.open, x.qp)
		v.unreliable[x.qp.QPN()] = x
		e[side] = x
	}
	e[0].peer, e[1].peer = e[1], e[0]
	for _, x := range e {
		d := x.peer.dev.d
		o.must(verbs.ConnectUC(x.qp, verbs.RemoteQP{
			AV:  verbs.AHAttr{DGID: d.gid, DLID: d.lid, Port: 1, HopLimit: 64},
			QPN: x.peer.qp.QPN(), PSN: 7, MTU: mtu, PeerFeatures: verbs.PeerGoucx,
		}, verbs.QPAttr{Access: verbs.RemoteWrite, SQPSN: 7}))
	}
	o.unreliable = e[:]
}

// post posts a message.
func (e *unreliableEnd) post() {
	o, i := e.o, len(e.msgs)
	n := 8 + pick(o, 0, o.rng.IntN(e.mtu), o.rng.IntN(5*e.mtu))
	if e.mem.room() < unreliableMem/2 || e.peer.at.room() < 2*n {
		return
	}
	m := &unreliableMsg{op: pick(o, verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm), signaled: o.chance(0.5)}
	wr := verbs.SendWR{ID: uint64(i) | unreliableSendID, Op: m.op, NumSG: 1}
	mark := *e.mem
	var b []byte
	wr.SG[0], b = e.mem.take(n)
	fill(o, b)
	binary.BigEndian.PutUint64(b, uint64(i))
	m.data = bytes.Clone(b)
	if m.signaled {
		wr.Flags = verbs.SendSignaled
	}
	if m.op == verbs.OpSendImm || m.op == verbs.OpWriteImm {
		m.imm = uint32(i)
		wr.Imm = m.imm
	}
	if m.op == verbs.OpWrite || m.op == verbs.OpWriteImm {
		var place verbs.SGE
		place, m.place = e.peer.at.take(n)
		wr.Remote, wr.RKey = place.Addr, e.peer.at.mr.RKey()
		switch m.refused = o.chance(0.2); {
		case m.refused && o.chance(0.5):
			wr.RKey ^= 1
		case m.refused:
			wr.Remote = e.peer.at.mr.Addr() + unreliableMem - 7
		}
	}
	switch k, st := e.qp.PostSend([]verbs.SendWR{wr}); {
	case k == 1:
		e.msgs = append(e.msgs, m)
	case st != ucs.NoResource || len(e.msgs)-e.next < unreliableDepth:
		o.fail("%s: post message %d: %v", e.name, i, st)
	default:
		e.mem.rewind(&mark)
	}
}

// postRecvs posts n receives, each for the longest message.
func (e *unreliableEnd) postRecvs(n int) {
	for ; n > 0 && len(e.recvs) < 32 && e.mem.room() > unreliableMem/4; n-- {
		r, wr := e.o.makeRecv(e.mem, uint64(e.mem.next)|unreliableRecvID, 5*e.mtu+8, verbs.WCSuccess)
		if k, st := e.qp.PostRecv([]verbs.RecvWR{wr}); k != 1 {
			e.o.fail("%s: post receive: %v", e.name, st)
		}
		e.recvs[r.id] = r
	}
}

// completed looks at a completion.
func (e *unreliableEnd) completed(wc *verbs.WC) {
	o, i := e.o, int(wc.ID&indexOf)
	if wc.Status != verbs.WCSuccess {
		o.fail("%s: work request %#x ended with %v", e.name, wc.ID, wc.Status)
	}
	if wc.ID&unreliableSendID != 0 {
		for ; e.next < i && !e.msgs[e.next].signaled; e.next++ {
		}
		if i != e.next || !e.msgs[i].signaled || wc.Op != sendWCOps[e.msgs[i].op] {
			o.fail("%s: message %d ended as %v, the next is %d", e.name, i, wc.Op, e.next)
		}
		e.next++
		return
	}
	r := e.recvs[wc.ID]
	if r == nil {
		o.fail("%s: receive %#x completed and is not queued", e.name, wc.ID)
	}
	delete(e.recvs, wc.ID)
	e.arrived(wc, bytes.Join(r.mem, nil))
}

// arrived compares a message with what the peer sent.
func (e *unreliableEnd) arrived(wc *verbs.WC, got []byte) {
	o := e.o
	i := uint64(wc.Imm)
	if wc.Op == verbs.WCRecv {
		i = binary.BigEndian.Uint64(got)
	}
	if i >= uint64(len(e.peer.msgs)) {
		o.fail("%s: message %d came of %d", e.name, i, len(e.peer.msgs))
	}
	m := e.peer.msgs[i]
	m.came++
	op, flags := verbs.WCRecv, verbs.WCFlags(0)
	switch m.op {
	case verbs.OpSendImm:
		flags = verbs.WCWithImm
	case verbs.OpWriteImm:
		op, flags, got = verbs.WCRecvImm, verbs.WCWithImm, m.place
	default:
	}
	switch {
	case m.refused || m.op == verbs.OpWrite || m.came > 4:
		o.fail("%s: message %d, %v, came, times %d, refused %v", e.name, i, m.op, m.came, m.refused)
	case wc.Op != op || wc.Flags != flags || wc.Imm != m.imm || int(wc.Len) != len(m.data):
		o.fail("%s: message %d of %d bytes came as %+v", e.name, i, len(m.data), *wc)
	case !bytes.Equal(got[:len(m.data)], m.data):
		o.fail("%s: message %d has other bytes, from byte %d of %d on", e.name, i, differ(got, m.data), len(m.data))
	}
	o.tally["unreliable messages"]++
}

// checkUnreliable wants all sent, and no bytes that no message brought.
func (o *oracle) checkUnreliable() {
	for _, e := range o.unreliable {
		for ; e.next < len(e.msgs) && !e.msgs[e.next].signaled; e.next++ {
		}
		if e.next < len(e.msgs) {
			o.fail("%s: message %d of %d did not end", e.name, e.next, len(e.msgs))
		}
		if s := e.qp.Query().State; s != verbs.StateRTS {
			o.fail("%s: in state %v", e.name, s)
		}
		for i, m := range e.msgs {
			for k, b := range m.place {
				if b != 0 && (m.refused || b != m.data[k]) {
					o.fail("%s: message %d: byte %d at the peer is %#x, refused %v", e.name, i, k, b, m.refused)
				}
			}
		}
		e.mem.checkGaps(o, e.name)
		e.at.checkGaps(o, e.name)
	}
}
