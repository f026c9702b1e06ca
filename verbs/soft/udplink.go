package soft

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// When a post over UDP is sent at once, and when it is batched with later ones. One
// system call for each short packet would limit the message rate.
const (
	holdAbove = 4                // outstanding packets above which the first post is delayed too
	holdLimit = maxSegments      // unsent packets from which on nothing is delayed
	holdTime  = ucs.Time(10_000) // longest delay of the first packet
)

// holdsBack reports whether the posted packets are batched with later ones. If so it
// marks q, so that a later pass sends them. The caller owns q.
func (q *qp) holdsBack() bool {
	if q.d.kind != overUDP || q.typ != verbs.RC || !q.collects() {
		return false
	}
	q.d.markDirty(q)
	return true
}

// collects reports whether a post is to be batched with later ones. The first post of a
// pass is not, unless many packets are outstanding. The caller owns q.
func (q *qp) collects() bool {
	r := &q.req
	passes := q.d.passes.Load()
	first := q.pass != passes
	q.pass = passes
	open := r.ahead()
	return q.unsent() < holdLimit && !(first && open <= holdAbove)
}

// unsent returns how many packets are queued and not sent.
func (q *qp) unsent() int {
	r := &q.req
	if q.sq.end() == r.tx {
		return 0
	}
	w := q.sq.at(q.sq.end() - 1)
	return w.psn.Add(int(w.npk)).Diff(r.psn)
}

// waits reports whether everything that could be sent is delayed to form a larger
// batch.
func (q *qp) waits(now ucs.Time) bool {
	s := &q.rsp
	if s.asked != 0 || s.nak != 0 || s.soon && q.to.foreign {
		return false
	}
	if n := q.unsent(); n > 0 {
		return q.holds(n, now)
	}
	return s.soon && q.ackWaits()
}

// ackWaits reports whether an ACK is delayed, until the socket has been found empty. It
// may then cover more packets, or be sent in the batch of a request if the program
// responds.
func (q *qp) ackWaits() bool {
	s := &q.rsp
	return !s.long && s.stood < ackAtLeast && q.d.drained.Load() == 0
}

// ackAtLeast is the most short messages that one ACK covers, even if the socket has
// more.
const ackAtLeast = 16

// holds reports whether n unsent packets are delayed to form a larger batch.
func (q *qp) holds(n int, now ucs.Time) bool {
	open := q.req.ahead()
	if open <= holdAbove || n >= holdLimit || 2*n >= open {
		q.heldAt = 0
		return false
	}
	if q.heldAt == 0 {
		q.heldAt = now
	}
	if now-q.heldAt >= holdTime {
		q.heldAt = 0
		return false
	}
	return true
}

// nextPacket builds the next packet. To a soft peer the ACK, which is short, is last,
// so that it fits into the segment batch of a request. To a foreign peer it is first:
// the program of that peer may wait for the ACK before it processes the request.
func (q *qp) nextPacket(p *packet) bool {
	if q.to.foreign {
		return q.nextReply(p) || q.nextRequest(p)
	}
	return q.nextAnswer(p) || q.nextRequest(p) || q.nextAck(p)
}

// sendUDP sends in segment batches. If the socket accepts no more it rewinds the send
// state to the first packet not accepted (backTo) and returns true.
//
// Two snapshots are kept for this. at is the state before the current batch, behind
// that after the last packet added to it. A batch is sent when the next packet does not
// fit.
func (q *qp) sendUDP() bool {
	u := q.d.udp
	p := &q.out
	var t *train
	at, most := q.here(), q.half()
	for behind := at; ; {
		if q.shortNext() {
			if t == nil {
				t = u.train(&q.to.udp)
			}
			if q.addShorts(t, most) {
				if !q.hasMore() {
					break
				}
				behind = q.here()
			}
		}
		if !q.nextPacket(p) {
			break
		}
		if t == nil {
			t = u.train(&q.to.udp)
		}
		if t.count >= most && p.op != wire.Acknowledge || !t.add(p) {
			if done, st := t.sendMost(); st == ucs.NoResource {
				q.backTo(&at, done)
				return true
			}
			at, most = behind, q.half()
			t = u.train(&q.to.udp)
			t.add(p)
		}
		if !q.hasMore() {
			break // the usual end
		}
		behind = q.here()
	}
	if t != nil {
		if done, st := t.sendMost(); st == ucs.NoResource {
			q.backTo(&at, done)
			return true
		}
	}
	return false
}

// hasMore reports whether something may be left to send.
func (q *qp) hasMore() bool {
	s := &q.rsp
	return q.req.tx != q.sq.end() || s.soon || s.asked != 0
}

// half returns how many packets a batch may have: half of those outstanding and unsent.
// So one batch is built while another is processed, and neither end waits for all. READ
// responses may fill a batch: the requester already asks for parts of that size.
func (q *qp) half() int {
	if s := &q.rsp; s.asked != 0 {
		return maxSegments
	}
	return max(holdAbove, (q.unsent()+q.req.psn.Diff(q.req.una)+1)/2)
}

// late is a packet that was received while another goroutine owned its queue pair.
type late struct {
	d *datagram
	i int
}

// maxLate is the most packets that wait for a queue pair's owner.
const maxLate = 64

// drainUDP receives datagrams from the socket and processes their packets. It returns
// the number of packets.
func (d *device) drainUDP(now ucs.Time) int {
	n := 0
	all := d.udp.recv()
	crossed()
	empty := uint32(0)
	if len(all) == 0 {
		empty = 1
	}
	storeRelease32(&d.drained, empty) // before the packets are acknowledged: ackWaits reads it
	for _, g := range all {
		if d.conf.Tap != nil {
			d.show(g)
		}
		var q *qp
		for i, all := 0, g.packets(); i < all; i++ {
			b := g.packet(i)
			n++
			if len(b) < minPacket {
				d.counts.add(cntDroppedShort, 1)
				continue
			}
			num := verbs.QPN(binary.BigEndian.Uint32(b[4:]) & 0xffffff)
			if q == nil || q.num != num {
				if q != nil {
					q.leave()
				}
				q = d.claim(num, g, i)
			}
			if q == nil {
				continue
			}
			if k := q.arriveShorts(g, i, all, now); k != 0 {
				i, n = i+k-1, n+k-1
				continue
			}
			q.fromUDP(&d.come, g, i, now)
		}
		if q != nil {
			q.leave()
		}
	}
	return n
}

// claim takes the ownership of the queue pair that packet i of g is for. It returns nil
// if there is none, or if another goroutine owns it; the packet is queued for the owner
// then. It is queued before pending work is marked. So either the owner finds it in
// leave, or claim acquires the ownership and processes it.
func (d *device) claim(num verbs.QPN, g *datagram, i int) *qp {
	q := d.qps.find(num)
	if q == nil {
		d.counts.add(cntDroppedQPN, 1)
		return nil
	}
	if q.take() {
		q.polled = true
		q.takeLate()
		return q
	}
	q.lateLock.lock()
	if len(q.late) < maxLate {
		g.hold()
		q.late = append(q.late, late{g, i})
	} else {
		d.counts.add(cntDroppedInbox, 1)
	}
	q.lateN.Store(int32(len(q.late)))
	q.lateLock.unlock()
	if q.takeOrNote() { // the owner released it meanwhile
		q.leave()
	}
	return nil
}

// takeLate processes the packets that were received while another goroutine owned the
// queue pair.
func (q *qp) takeLate() {
	q.looks()
	var p packet
	for q.lateN.Load() != 0 {
		q.lateLock.lock()
		all := q.late
		q.late, q.spareLate = q.spareLate[:0], nil
		q.lateN.Store(0)
		q.lateLock.unlock()
		now := ucs.Time(q.d.now.Load())
		for i := range all {
			q.fromUDP(&p, all[i].d, all[i].i, now)
			all[i].d.release()
			all[i].d = nil
		}
		q.spareLate = all[:0]
	}
}

// fromUDP checks and processes packet i of g.
func (q *qp) fromUDP(p *packet, g *datagram, i int, now ucs.Time) {
	if q.typ == verbs.RC && !q.to.udp.sent(g) {
		q.count(cntDroppedSource, 1)
		return
	}
	f, ok := g.open(i, p, q.foreign())
	switch {
	case !ok:
		q.count(cntDroppedICRC, 1)
	case f == wire.FaultShort:
		q.count(cntDroppedShort, 1)
	case f != wire.FaultNone:
		q.count(cntDroppedOpcode, 1)
	default:
		if q.typ == verbs.UD {
			p.sgid, p.slid, p.tos, p.ttl = g.from.gid(), g.from.lid(), g.tos, g.ttl
		}
		q.arrive(p, now)
	}
}
