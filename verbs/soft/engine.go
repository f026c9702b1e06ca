package soft

import (
	"errors"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

const (
	maxDrain   = 64 // packets that one pass handles
	clockEvery = 16 // passes between two readings of the clock
)

// engine is the part of a device that moves packets.
type engine struct {
	qps   qpTable
	gid   verbs.GID
	lid   uint16
	index uint32 // in the Switch
	kind  linkKind
	link  link
	inbox *inbox      // of overInproc
	udp   *udp.Socket // of overUDP: that of GID 0
	// sockets are those of overUDP by GID index, all on the same port.
	sockets []*udp.Socket
	// manySockets is set if receiveUDP has more to look at than one socket: several addresses, or
	// multicast groups.
	manySockets atomic.Bool
	faults      *faultLink // the link, if it has faults

	_        ucs.Pad
	rx       owner         // the receive token
	passes   atomic.Uint32 // calls of Poll; approximate, because pollers count without a lock
	now      atomic.Int64  // ucs.Time, some passes old
	sinkCQ   *cq           // under rx: the queue whose completions go to sinkTo
	sinkTo   []verbs.WC
	sinkN    int
	counts   counts // under rx
	rxPacket packet // under rx: the received packet

	socketEmpty atomic.Uint32 // 1: the last pass found the socket empty

	lock       spinlock
	dirty      []*qp // queue pairs that send in a later pass; under lock
	spareDirty []*qp
	numDirty   atomic.Int32
	timed      []*qp // queue pairs with a timer; under lock
	// spareTimed is the memory of the previous such list, for reuse; under lock.
	spareTimed []*qp
	moderated  []*cq        // with delayed events; under lock
	numTimed   atomic.Int32 // queue pairs and completion queues with a timer
	nextTimer  atomic.Int64 // lower bound of the times in timed; ucs.Time

	memoryUsers memoryUsers
	background  background
}

// start opens the link and starts the background goroutine.
func (d *device) start() error {
	d.nextTimer.Store(int64(never))
	if err := d.openLink(); err != nil {
		return err
	}
	d.now.Store(int64(d.clock()))
	if err := d.startBackground(); err != nil {
		return errors.Join(err, d.link.close())
	}
	return nil
}

// stop stops the background goroutine and closes the link. The device has no queue
// pairs any more.
func (d *device) stop() error {
	err := errors.Join(d.stopBackground(), d.link.close())
	d.quiesce()
	return err
}

const never = ucs.Time(1<<63 - 1)

// tick records the time and serves expired timers. It serves none while another
// goroutine holds the receive token. That goroutine may have been interrupted for long,
// while the awaited responses arrived. The timers would use up all retries before it
// continues.
func (d *device) tick(now ucs.Time) {
	d.now.Store(int64(now))
	if d.numTimed.Load() != 0 && now >= ucs.Time(d.nextTimer.Load()) && !d.rx.held() {
		d.runTimers(now)
	}
}

// progress sends pending packets and handles received ones. It returns the number of
// received packets.
func (d *device) progress() int {
	if d.numDirty.Load() != 0 {
		d.flushDirty()
	}
	if !d.mayReceive() || !d.rx.tryAcquire() {
		return 0
	}
	n := d.link.receive(ucs.Time(d.now.Load()))
	d.rxPacket.dropPayload()
	d.rx.release()
	if n == 0 && d.numDirty.Load() != 0 {
		d.flushDirty() // sending may have been deferred until the socket is empty
	}
	return n
}

// progressInto is pass, with the completions of c written directly to wcs. It returns
// the number of completions.
func (d *device) progressInto(c *cq, wcs []verbs.WC) int {
	n := d.passes.Load() + 1
	cpu.StoreRelease32(&d.passes, n)
	if d.numDirty.Load() != 0 {
		d.flushDirty()
	}
	numCQEs := 0
	if d.mayReceive() && d.rx.tryAcquire() {
		d.sinkCQ, d.sinkTo, d.sinkN = c, wcs, 0
		n := d.link.receive(ucs.Time(d.now.Load()))
		d.rxPacket.dropPayload()
		numCQEs = d.sinkN
		d.sinkCQ, d.sinkTo = nil, nil
		d.rx.release()
		if n == 0 && d.numDirty.Load() != 0 {
			d.flushDirty() // sending may have been deferred until the socket is empty
		}
	}
	if n%clockEvery == 0 { // after receiving: what the timers wait for may have arrived
		d.tick(d.clock())
	}
	return numCQEs
}

// markDirty makes a later pass call q.run. The caller owns q. No work is lost: that run
// becomes the owner after the caller, or sets ownPending, so that the caller looks for work
// before it leaves.
func (d *device) markDirty(q *qp) {
	if q.dirty.Load() || q.dirty.Swap(true) {
		return
	}
	d.lock.lock()
	d.dirty = append(d.dirty, q)
	d.numDirty.Store(int32(len(d.dirty)))
	d.lock.unlock()
	d.wake()
}

// flushDirty runs all queue pairs in dirty.
func (d *device) flushDirty() {
	d.lock.lock()
	qs := d.dirty
	d.dirty, d.spareDirty = d.spareDirty[:0], nil
	d.numDirty.Store(0)
	d.lock.unlock()
	for i, q := range qs {
		qs[i] = nil
		q.dirty.Store(false)
		q.transmitOrNotify()
	}
	d.lock.lock()
	d.spareDirty = qs[:0]
	d.lock.unlock()
}

// setTimer makes the engine check q's timers by time when. The caller owns q.
func (d *device) setTimer(q *qp, when ucs.Time) {
	if !q.isTimed {
		q.isTimed = true
		d.addTimed(q, when)
		return
	}
	d.lowerNextTimer(when)
	d.wake()
}

// lowerNextTimer lowers nextTimer to when.
func (d *device) lowerNextTimer(when ucs.Time) {
	for {
		old := d.nextTimer.Load()
		if int64(when) >= old || d.nextTimer.CompareAndSwap(old, int64(when)) {
			return
		}
	}
}

// runTimers checks the timers of all queue pairs in timed.
func (d *device) runTimers(now ucs.Time) {
	d.lock.lock()
	qs := d.timed
	d.timed, d.spareTimed = d.spareTimed[:0], nil
	d.numTimed.Store(0)
	d.nextTimer.Store(int64(never))
	d.lock.unlock()
	for _, q := range qs {
		if !q.tryAcquire() { // its owner is active: check again later
			d.addTimed(q, now)
			continue
		}
		q.isTimed = false
		if next := q.expireTimers(now); next != never {
			d.setTimer(q, next)
		}
		q.transmitAndRelease()
	}
	clear(qs) // keep no reference to a closed queue pair
	d.lock.lock()
	d.spareTimed = qs[:0]
	moderated := len(d.moderated) != 0
	d.lock.unlock()
	if moderated {
		d.expireEvents(now)
	}
}

// addTimed adds q to timed, to be checked by time when.
func (d *device) addTimed(q *qp, when ucs.Time) {
	d.lock.lock()
	d.timed = append(d.timed, q)
	d.numTimed.Store(int32(len(d.timed) + len(d.moderated)))
	d.lock.unlock()
	d.lowerNextTimer(when)
	d.wake()
}

// postCQE posts a completion. It bypasses the queue and writes to sinkTo if the polling
// goroutine owns q, and c is empty, usable and not armed.
func (q *qp) postCQE(c *cq, w *verbs.WC, solicited bool) {
	if d := q.d; q.rxOwned && d.sinkCQ == c && d.sinkN < len(d.sinkTo) && c.armed.Load() == armedNot && c.empty() && c.state.Load() == cqUsable {
		d.sinkTo[d.sinkN] = *w
		d.sinkN++
		return
	}
	if !c.push(w, solicited) {
		q.failedCQ = c
	}
}

// handlePacket handles a packet received for q. The caller owns q.
func (q *qp) handlePacket(p *packet, now ucs.Time) {
	q.count(cntRxPackets, uint64(1+p.batchMore))
	q.count(cntRxBytes, uint64(p.n))
	info := p.Opcode.Info()
	if !wire.PKeysMatch(p.PKey, q.pkey) {
		q.count(cntDroppedPKey, 1)
		return
	}
	if s := q.loadState(); s < verbs.StateRTR || s == verbs.StateErr {
		q.count(cntDroppedQPN, 1)
		return
	}
	switch info.Kind {
	case wire.KindDatagram:
		if q.typ == verbs.UD {
			q.receiveDatagram(p, info)
			return
		}
	case wire.KindUnreliable:
		if q.typ == verbs.UC {
			p.Opcode -= wire.UC
			q.handleUnreliable(p, now)
			return
		}
	case wire.KindAck, wire.KindReadResponse:
		if q.typ == verbs.RC {
			r := &q.req
			switch {
			case q.handleResponse(p):
				if len(r.reorder.packets) != 0 {
					q.drainResponses(now)
				}
			case !r.probe.enabled || p.Opcode == wire.Acknowledge && !p.Syndrome.IsAck():
			case r.reorder.insert(p, r.una, r.window.max):
				q.findGaps(now) // p waits for a missing response
			}
			return
		}
	case wire.KindSend, wire.KindWrite, wire.KindReadRequest, wire.KindAtomic:
		if q.typ == verbs.RC {
			q.handleRequest(p, info, now)
			if len(q.rsp.reorder.packets) != 0 {
				q.drainRequests(p.AckReq, now)
			}
			if q.rsp.ackState == ackDue && q.rsp.longAckReq { // the ACK of a whole segment batch lets its sender continue
				q.transmit()
			}
			return
		}
	default: // not for a queue pair of this type
	}
	q.count(cntDroppedOpcode, 1)
}

// transmit sends pending packets of q as far as the link takes them. The caller owns q.
func (q *qp) transmit() {
	if q.failedCQ != nil { // a completion was lost: the error state
		q.failedCQ = nil
		if s := q.loadState(); s != verbs.StateErr && s != verbs.StateReset {
			q.d.raise(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: q})
			q.enterErr()
		}
	}
	s := q.loadState()
	if s == verbs.StateErr || s == verbs.StateSQE { // complete what was posted since
		q.flushSends()
		if s == verbs.StateErr {
			q.flushRecvs()
		}
		return
	}
	if s < verbs.StateRTR {
		return
	}
	q.markMemoryUser()
	now := ucs.Time(q.d.now.Load())
	more := q.d.link.send(q, now)
	q.txPacket.dropPayload()
	if more {
		q.d.markDirty(q)
	}
	if q.typ != verbs.RC {
		switch {
		case q.typ == verbs.UC:
			q.unreliableSent()
		case !more:
			q.datagramsSent()
		}
		return
	}
	r := &q.rsp
	if r.flags&rspRefused != 0 && r.ackState == ackNone && r.pendingResponses == 0 {
		q.enterErr()
		return
	}
	if (more || q.req.una != q.req.psn) && !q.isTimed {
		q.d.setTimer(q, now+maxTimerDelay)
	}
	q.checkDrained()
}

// maxTimerDelay is the longest time until the retransmission timer of a sent packet starts.
const maxTimerDelay = ucs.Time(100_000)

// checkDrained raises EventSQDrained once the send queue of a draining queue pair is drained.
func (q *qp) checkDrained() {
	r := &q.req
	if qpState(q.state.Load()) == qpDraining && r.una == r.psn && r.sent == 0 && (r.tx == q.sq.end() || !q.sq.at(r.tx).started) {
		q.setState(qpSQD)
		q.d.raise(verbs.AsyncEvent{Type: verbs.EventSQDrained, QP: q})
	}
}
