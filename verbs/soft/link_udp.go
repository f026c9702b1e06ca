package soft

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// When a post over UDP is sent at once, and when it is batched with later ones. One
// system call for each short packet would limit the message rate.
const (
	batchAbove = 4                // outstanding packets above which the first post is delayed too
	batchLimit = udp.MaxSegments  // unsent packets from which on nothing is delayed
	batchDelay = ucs.Time(10_000) // longest delay of the first packet
)

// udpLink is the link over a UDP socket.
type udpLink struct{ d *device }

func (l udpLink) resolve(a *verbs.AHAttr) (r route, err error) {
	u := l.d.sockets[a.SGIDIndex]
	if a.DGID.Addr().IsMulticast() {
		r.udp, err = l.groupPeer(u, a.DGID)
	} else {
		r.udp, err = u.Peer(a.DGID, a.DLID)
	}
	if err == nil {
		err = u.SetFlowLabel(&r.udp, a.FlowLabel)
	}
	u.SetClass(&r.udp, a.TrafficClass, a.HopLimit)
	return r, err
}

func (l udpLink) send(q *qp, now ucs.Time) bool {
	switch q.typ {
	case verbs.UD:
		return q.sendDatagrams()
	case verbs.UC:
		return q.sendUDP()
	default:
		return q.delaySend(now) || q.sendUDP()
	}
}

func (l udpLink) sendOne(to *route, p *packet, _ ucs.Time) bool {
	t := to.udp.Begin()
	addPacket(t, p)
	t.Send()
	return true
}

// sendEncoded sends packets in segment batches. It skips those that are no packets any
// more.
func (l udpLink) sendEncoded(ps []delayedPacket[route]) {
	var t *udp.Batch
	var to *udp.Peer // peer of t
	for i := range ps {
		h := &ps[i]
		var p packet
		if p.decode(h.b[:len(h.b)-wire.ICRCLen]) != wire.FaultNone {
			continue
		}
		if t != nil && (*to != h.dest.udp || !addPacket(t, &p)) {
			t.Send()
			t = nil
		}
		if t == nil {
			to = &h.dest.udp
			t = to.Begin()
			addPacket(t, &p)
		}
	}
	if t != nil {
		t.Send()
	}
}

func (l udpLink) receive(e *engine, now ucs.Time) int { return e.receiveUDP(now) }

func (l udpLink) hasPackets() bool { return false }

func (l udpLink) close() error { return closeSockets(l.d.sockets) }

// deferSend reports whether the posted packets are batched with later ones. If so it
// marks q, so that a later pass sends them. The first post of a pass is sent at once,
// unless many packets are outstanding. The caller owns q.
func (q *qp) deferSend() bool {
	if q.d.kind != overUDP || q.typ != verbs.RC {
		return false
	}
	passes := q.e.passes.Load()
	first := q.lastPasses != passes
	q.lastPasses = passes
	if q.unsent() >= batchLimit || first && q.req.outstanding() <= batchAbove {
		return false
	}
	q.e.markDirty(q)
	return true
}

// unsent returns how many packets are queued and not sent.
func (q *qp) unsent() int {
	r := &q.req
	if q.sq.end() == r.tx {
		return 0
	}
	w := q.sq.at(q.sq.end() - 1)
	return w.psn.Add(int(w.numPSNs)).Diff(r.psn)
}

// delaySend reports whether everything that could be sent is delayed to form a larger
// batch. An ACK alone is delayed until the socket has been found empty. It may then cover
// more packets, or be sent in the batch of a request if the program responds.
func (q *qp) delaySend(now ucs.Time) bool {
	s := &q.rsp
	if s.pendingResponses != 0 || s.nak != 0 || s.ackState == ackDue && q.route.foreign {
		return false
	}
	if n := q.unsent(); n > 0 {
		return q.delayBatch(n, now)
	}
	return s.ackState == ackDue && !s.longAckReq && s.unacked < maxUnackedShort && q.d.socketEmpty.Load() == 0
}

// maxUnackedShort is the most short messages that one ACK covers, even if the socket has
// more.
const maxUnackedShort = 16

// delayBatch reports whether n unsent packets are delayed to form a larger batch.
func (q *qp) delayBatch(n int, now ucs.Time) bool {
	open := q.req.outstanding()
	if open <= batchAbove || n >= batchLimit || 2*n >= open {
		q.delayedSince = 0
		return false
	}
	if q.delayedSince == 0 {
		q.delayedSince = now
	}
	if now-q.delayedSince >= batchDelay {
		q.delayedSince = 0
		return false
	}
	return true
}

// nextPacket builds the next packet. To a soft peer the ACK, which is short, is last,
// so that it fits into the segment batch of a request. To a foreign peer it is first:
// the program of that peer may wait for the ACK before it processes the request.
func (q *qp) nextPacket(p *packet) bool {
	if q.route.foreign {
		return q.nextResponse(p) || q.nextAck(p) || q.nextRequest(p)
	}
	return q.nextResponse(p) || q.nextRequest(p) || q.nextAck(p)
}

// addPacket appends p to a batch. It returns false, without side effects, if p does not
// fit. A long payload is referenced, unless p is a retransmission.
//
//hot:bench BenchmarkUDPPingPong
func addPacket(t *udp.Batch, p *packet) bool {
	n := p.Opcode.Info().PacketLen(p.n)
	b := t.Reserve(n)
	if b == nil {
		return false
	}
	if p.n <= udp.CopyLimit || p.retransmitted {
		p.encode(b)
		t.Seal(n)
	} else {
		h := p.encodeHeader(b)
		t.SealByRef(n, h, p.sg[:p.nsg], int(p.PadCnt))
	}
	return true
}

// sendUDP sends in segment batches. If the socket accepts no more it rewinds the send
// state to the first packet not accepted (restoreSendState) and returns true.
//
// Two snapshots are kept for this. at is the state before the current batch, afterLast
// that after the last packet added to it. A batch is sent when the next packet does not
// fit.
func (q *qp) sendUDP() bool {
	p := &q.txPacket
	var t *udp.Batch
	at, most := q.saveSendState(), q.batchTarget()
	for afterLast := at; ; {
		if r, s := &q.req, &q.rsp; q.fastUDPMax >= 0 && r.tx != q.sq.end() && q.sq.at(r.tx).isFast() && r.sent == 0 && !r.failed &&
			r.rnrWait == 0 && !r.probe.pending && r.psn.Diff(r.una) < shortPackets*r.window.cur && s.pendingResponses == 0 &&
			q.loadState() == verbs.StateRTS {
			if t == nil {
				t = q.route.udp.Begin()
			}
			if q.addFast(t, most) {
				if !q.hasMore() {
					break
				}
				afterLast = q.saveSendState()
			}
		}
		if !q.nextPacket(p) {
			break
		}
		if t == nil {
			t = q.route.udp.Begin()
		}
		if t.Count >= most && p.Opcode != wire.Acknowledge || !addPacket(t, p) {
			if done, st := t.SendMost(); st == ucs.NoResource {
				q.restoreSendState(&at, done)
				return true
			}
			at, most = afterLast, q.batchTarget()
			t = q.route.udp.Begin()
			addPacket(t, p)
		}
		if !q.hasMore() {
			break // the usual end
		}
		afterLast = q.saveSendState()
	}
	if t != nil {
		if done, st := t.SendMost(); st == ucs.NoResource {
			q.restoreSendState(&at, done)
			return true
		}
	}
	return false
}

// sendDatagrams sends queued datagrams, consecutive ones to one peer as a batch. It
// returns true if the socket accepts no more and some are left. A datagram completes once
// it is sent.
func (q *qp) sendDatagrams() bool {
	r := &q.req
	var t *udp.Batch
	for {
		to := q.nextDatagram(&q.txPacket)
		if to != nil && t != nil && t.Peer == &to.udp && addPacket(t, &q.txPacket) {
			continue
		}
		if t != nil {
			n := t.Count
			switch done, st := t.SendMost(); st {
			case ucs.OK:
			case ucs.NoResource: // the datagrams that the socket did not take stay queued
				r.tx = r.head + uint32(done)
				q.completeDatagrams(r.tx)
				return true
			default:
				q.count(cntDroppedInbox, uint64(n))
			}
			end := r.tx
			if to != nil {
				end-- // the new one is not sent yet
			}
			q.completeDatagrams(end)
		}
		if to == nil {
			return false
		}
		t = to.udp.Begin()
		addPacket(t, &q.txPacket)
	}
}

// hasMore reports whether something may be left to send.
func (q *qp) hasMore() bool {
	s := &q.rsp
	return q.req.tx != q.sq.end() || s.ackState == ackDue || s.pendingResponses != 0
}

// batchTarget returns how many packets a batch may have: half of those outstanding and unsent.
// So one batch is built while another is processed, and neither end waits for all. READ
// responses may fill a batch: the requester already asks for parts of that size.
func (q *qp) batchTarget() int {
	if s := &q.rsp; s.pendingResponses != 0 {
		return udp.MaxSegments
	}
	return max(batchAbove, (q.unsent()+q.req.psn.Diff(q.req.una)+1)/2)
}

// deferredPacket is a packet that waits for the owner of its queue pair, or for the engine that
// the queue pair belongs to.
type deferredPacket struct {
	d *udp.Datagram
	i int
}

// Most packets that wait: for an owner, and for another engine. Those of many queue pairs are
// limited by the buffers of the socket (recv).
const (
	maxDeferred      = 64
	maxDeferredOther = 512
)

// receiveUDP receives datagrams from the socket and processes their packets. It returns
// the number of packets.
func (e *engine) receiveUDP(now ucs.Time) int {
	d := e.d
	if d.manySockets.Load() {
		return e.receiveAll(now)
	}
	all := d.recv(d.udp)
	empty := uint32(0)
	if len(all) == 0 {
		empty = 1
	}
	cpu.StoreRelease32(&d.socketEmpty, empty) // before the packets are acknowledged: delaySend reads it
	return e.handleDatagrams(all, now)
}

// recv receives from socket u. If it has no buffer, because all hold packets for other engines,
// it has those packets processed. So an engine that does not run stops no other one for long.
func (d *device) recv(u *udp.Socket) []*udp.Datagram {
	all := u.Recv()
	if len(all) == 0 && u.LacksBuffer() {
		for _, e := range *d.engines.Load() {
			e.flushDirty()
		}
		all = u.Recv()
	}
	return all
}

// receiveAll is receiveUDP for a device with several addresses, or in multicast groups.
func (e *engine) receiveAll(now ucs.Time) (n int) {
	d, empty := e.d, uint32(1)
	var all [maxGIDs][]*udp.Datagram
	for i, u := range d.sockets {
		if all[i] = d.recv(u); len(all[i]) > 0 {
			empty = 0
		}
	}
	cpu.StoreRelease32(&d.socketEmpty, empty)
	for i := range d.sockets {
		n += e.handleDatagrams(all[i], now)
	}
	if groups := d.groups.sockets.Load(); groups != nil {
		for _, u := range groups.Ready() {
			n += e.handleGroupDatagrams(d.recv(u), now)
		}
	}
	return n
}

// maxGIDs is the most GIDs of a device: each costs a system call per pass.
const maxGIDs = 16

// handleDatagrams processes the packets of received datagrams and returns their number.
func (e *engine) handleDatagrams(all []*udp.Datagram, now ucs.Time) (n int) {
	for _, g := range all {
		var q *qp
		for i, all := 0, g.Packets(); i < all; i++ {
			b := g.Packet(i)
			n++
			if len(b) < udp.MinPacket {
				e.counts.add(cntDroppedShort, 1)
				continue
			}
			num := verbs.QPN(binary.BigEndian.Uint32(b[4:]) & 0xffffff)
			if q == nil || q.num != num {
				if q != nil {
					q.transmitAndRelease()
				}
				if q = e.d.qps.find(num); q == nil {
					e.counts.add(cntDroppedQPN, 1)
				} else if !e.acquireOrDefer(q, g, i) {
					q = nil
				}
			}
			if q == nil {
				continue
			}
			if k := q.handleFastBatch(g, i, all, now); k != 0 {
				i, n = i+k-1, n+k-1
				continue
			}
			q.handleUDPPacket(&e.rxPacket, g, i, now)
		}
		if q != nil {
			q.transmitAndRelease()
		}
	}
	return n
}

// acquireOrDefer takes the ownership of the queue pair that packet i of g is for. It returns
// false if the packet is queued instead: for another goroutine that owns the queue pair, or for
// another engine that it belongs to and that runs. An engine that sleeps has no goroutine which
// would be faster.
//
// The packet is queued before the owner or the engine is notified. So either they find it in
// transmitAndRelease, or acquireOrNotify acquires the ownership and processes it.
func (e *engine) acquireOrDefer(q *qp, g *udp.Datagram, i int) bool {
	other := q.e != e && q.e.sleeping.Load() == 0
	if (!other || q.numDeferred.Load() >= maxDeferredOther) && q.tryAcquire() {
		q.rx = e
		q.handleDeferred()
		return true
	}
	limit := maxDeferred
	if other {
		limit = maxDeferredOther
	}
	q.deferredLock.lock()
	if len(q.deferred) < limit {
		g.Hold()
		q.deferred = append(q.deferred, deferredPacket{g, i})
	} else {
		e.counts.add(cntDroppedInbox, 1)
	}
	q.numDeferred.Store(int32(len(q.deferred)))
	q.deferredLock.unlock()
	if other {
		q.e.markDirty(q)
	} else if q.acquireOrNotify() { // the owner released it meanwhile
		q.transmitAndRelease()
	}
	return false
}

// handleDeferred processes the packets that were received while another goroutine owned the
// queue pair.
func (q *qp) handleDeferred() {
	q.markMemoryUser()
	var p packet
	for q.numDeferred.Load() != 0 {
		q.deferredLock.lock()
		all := q.deferred
		q.deferred, q.spareDeferred = q.spareDeferred[:0], nil
		q.numDeferred.Store(0)
		q.deferredLock.unlock()
		now := ucs.Time(q.e.now.Load())
		for i := range all {
			q.handleUDPPacket(&p, all[i].d, all[i].i, now)
			all[i].d.Release()
			all[i].d = nil
		}
		q.spareDeferred = all[:0]
	}
}

// handleUDPPacket checks and processes packet i of g.
func (q *qp) handleUDPPacket(p *packet, g *udp.Datagram, i int, now ucs.Time) {
	if q.typ != verbs.UD && !q.route.udp.Matches(g) {
		q.count(cntDroppedSource, 1)
		return
	}
	f, ok := decodePacket(g, i, p, q.icrc)
	switch {
	case !ok:
		q.count(cntDroppedICRC, 1)
	case f == wire.FaultShort:
		q.count(cntDroppedShort, 1)
	case f != wire.FaultNone:
		q.count(cntDroppedOpcode, 1)
	default:
		if q.typ == verbs.UD {
			p.sgid, p.dgid, p.slid, p.tos, p.ttl, p.flow = g.From.GID(), g.GID(), g.From.LID(), g.TOS, g.TTL, g.Flow
		}
		q.handlePacket(p, now)
	}
}

// decodePacket decodes packet i of g and then checks its ICRC; ok is false if only the
// ICRC is wrong.
//
//hot:bench BenchmarkUDPPingPong
func decodePacket(g *udp.Datagram, i int, p *packet, c udp.ICRCCheck) (f wire.Fault, ok bool) {
	b := g.Packet(i)
	if len(b) < udp.MinPacket {
		return wire.FaultShort, true
	}
	if f = p.decode(b[:len(b)-wire.ICRCLen]); f != wire.FaultNone {
		return f, true
	}
	return f, g.Check(i, c)
}
