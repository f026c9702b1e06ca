package soft

import (
	"bytes"
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// datagramEnd is a device's queue pair for datagrams.
type datagramEnd struct {
	o     *oracle
	dev   *oracleDev
	qp    verbs.QP
	ahs   []verbs.AHID // by device
	group verbs.AHID   // of the group that all are in
	mem   *memory
	sends int // posted
	ended int
	recvs map[uint64]*recvBuf // queued
}

// datagramSent is a datagram and what must come of it, if anything.
type datagramSent struct {
	from, to *datagramEnd // to is nil: all but the sender
	data     []byte
	imm      uint32
	hasImm   bool
	wrongKey bool // it must not arrive
	came     int
}

const (
	datagramSendID = 1 << 35
	datagramRecvID = 1 << 36
	oracleQKey     = 0x1234567
	longestUD      = 600
)

var oracleGroup = verbs.GID{0: 0xff, 1: 0x15, 15: 9}

func (o *oracle) openDatagrams() {
	for _, v := range o.devs {
		e := &datagramEnd{o: o, dev: v, mem: v.memory(o, v.pd, 256<<10, verbs.LocalWrite), recvs: make(map[uint64]*recvBuf)}
		var err error
		e.qp, err = v.domain(o).CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: v.cq, RecvCQ: v.cq, SignalAll: true, Caps: verbs.QPCaps{MaxSend: 16, MaxRecv: rqDepth}})
		o.must(err)
		v.open = append(v.open, e.qp)
		v.datagrams = e
		o.must(verbs.StartUD(e.qp, verbs.QPAttr{Port: 1, QKey: oracleQKey}))
		for _, peer := range o.devs {
			ah, err := v.pd.CreateAH(verbs.AHAttr{DGID: peer.d.gid, DLID: peer.d.lid, Port: 1, HopLimit: 64})
			o.must(err)
			v.open = append(v.open, ah)
			e.ahs = append(e.ahs, ah.ID())
		}
		o.must(verbs.AttachMulticast(e.qp, oracleGroup))
		ah, err := v.pd.CreateAH(verbs.AHAttr{DGID: oracleGroup, Port: 1})
		o.must(err)
		v.open = append(v.open, ah, detached{e.qp})
		e.group = ah.ID()
	}
}

// detached detaches a queue pair from the group when it is closed.
type detached struct{ qp verbs.QP }

func (d detached) Close() error { return verbs.DetachMulticast(d.qp, oracleGroup) }

// post sends one to a random device, or to the group.
func (e *datagramEnd) post() {
	o := e.o
	if e.mem.room() < 4*longestUD {
		return
	}
	m := &datagramSent{from: e, to: pick(o, o.devs...).datagrams, hasImm: o.chance(0.3), wrongKey: o.chance(0.1)}
	s, b := e.mem.take(8 + o.rng.IntN(longestUD-8))
	fill(o, b)
	binary.BigEndian.PutUint64(b, uint64(len(o.datagrams)))
	m.data = bytes.Clone(b)
	wr := verbs.SendWR{
		ID: uint64(e.sends) | datagramSendID, Op: verbs.OpSend, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{s},
		QPN: m.to.qp.QPN(), QKey: oracleQKey, AH: e.ahs[m.to.dev.i],
	}
	if o.chance(0.3) {
		m.to, wr.QPN, wr.AH = nil, verbs.MulticastQPN, e.group
	}
	if m.hasImm {
		m.imm = o.rng.Uint32()
		wr.Op, wr.Imm = verbs.OpSendImm, m.imm
	}
	if m.wrongKey {
		wr.QKey ^= 1 << o.rng.IntN(31)
	}
	switch n, st := e.qp.PostSend([]verbs.SendWR{wr}); {
	case n == 1:
		e.sends++
		o.datagrams = append(o.datagrams, m)
	case st != ucs.NoResource || e.sends-e.ended < 16:
		o.fail("device %d: post datagram: %v", e.dev.i, st)
	}
}

// postRecvs posts n receives.
func (e *datagramEnd) postRecvs(n int) {
	for ; n > 0 && len(e.recvs) < 32 && e.mem.room() > 2*longestUD; n-- {
		r, wr := e.o.makeRecv(e.mem, uint64(e.mem.next)|datagramRecvID, longestUD+grhLen, verbs.WCSuccess)
		if k, st := e.qp.PostRecv([]verbs.RecvWR{wr}); k != 1 {
			e.o.fail("device %d: post receive of datagrams: %v", e.dev.i, st)
		}
		e.recvs[r.id] = r
	}
}

// completed looks at a completion.
func (e *datagramEnd) completed(wc *verbs.WC) {
	if wc.Status != verbs.WCSuccess {
		e.o.fail("device %d: datagram work request %#x ended with %v", e.dev.i, wc.ID, wc.Status)
	}
	if wc.ID&datagramSendID != 0 {
		if int(wc.ID&indexOf) != e.ended {
			e.o.fail("device %d: datagram %d ended, the next is %d", e.dev.i, wc.ID&indexOf, e.ended)
		}
		e.ended++
		return
	}
	r := e.recvs[wc.ID]
	if r == nil {
		e.o.fail("device %d: receive %#x of datagrams completed and is not queued", e.dev.i, wc.ID)
	}
	delete(e.recvs, wc.ID)
	e.arrived(wc, bytes.Join(r.mem, nil))
}

// arrived compares a datagram with what was sent.
func (e *datagramEnd) arrived(wc *verbs.WC, got []byte) {
	o := e.o
	if wc.Len < grhLen+8 || wc.Flags&verbs.WCGRH == 0 {
		o.fail("device %d: a datagram came as %+v", e.dev.i, *wc)
	}
	grh, got := got[:grhLen], got[grhLen:]
	i := binary.BigEndian.Uint64(got)
	if i >= uint64(len(o.datagrams)) {
		o.fail("device %d: datagram %d came of %d", e.dev.i, i, len(o.datagrams))
	}
	m := o.datagrams[i]
	m.came++
	src, dst, most := m.from.dev.d.gid, e.dev.d.gid, 4
	if m.to == nil {
		dst, most = oracleGroup, 4*(len(o.devs)-1)
	}
	switch n := int(wc.Len) - grhLen; {
	case m.to != e && m.to != nil || m.to == nil && m.from == e || m.wrongKey || m.came > most:
		o.fail("device %d: datagram %d came, times %d, wrong key %v", e.dev.i, i, m.came, m.wrongKey)
	case n != len(m.data) || !bytes.Equal(got[:n], m.data):
		o.fail("device %d: datagram %d of %d bytes came with %d, different from byte %d on", e.dev.i, i, len(m.data), n, differ(got, m.data))
	case wc.SrcQP != m.from.qp.QPN() || wc.SLID != m.from.dev.d.lid || wc.Imm != m.imm || (wc.Flags&verbs.WCWithImm != 0) != m.hasImm:
		o.fail("device %d: datagram %d came as %+v", e.dev.i, i, *wc)
	case !bytes.Equal(grh[8:24], src[:]) || !bytes.Equal(grh[24:40], dst[:]):
		o.fail("device %d: datagram %d has header %x", e.dev.i, i, grh)
	}
	o.tally["datagrams"]++
	if m.to == nil {
		o.tally["datagrams to a group"]++
	}
}

// checkDatagrams wants all sent, and over good links those for which there was a
// receive.
func (o *oracle) checkDatagrams() {
	for _, v := range o.devs {
		if e := v.datagrams; e.ended != e.sends {
			o.fail("device %d: %d of %d datagrams ended", v.i, e.ended, e.sends)
		}
		v.datagrams.mem.checkGaps(o, "datagrams")
	}
}
