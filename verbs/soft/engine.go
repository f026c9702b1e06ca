package soft

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

const (
	maxDrain   = 64 // packets that one pass handles
	clockEvery = 16 // passes between two readings of the clock
)

// engine moves the packets of the queue pairs that belong to it. Each thread domain has one, so
// that two threads write no common cache line. All other queue pairs belong to the device's own
// engine.
//
// A queue pair stays with its engine (qp.e). Its timers, and what it has to send later, are in
// that engine's lists. On the in-process link its packets arrive in that engine's inbox, which
// keeps them in order. The owner word of a queue pair guards its state machines, so any engine
// may process a packet for it.
//
// An engine runs in the polls of the completion queues that its queue pairs use (cq.Poll). While
// there are none, the background goroutine runs it.
type engine struct {
	// Read by senders, written seldom.
	d        *device
	inbox    inbox         // of the in-process link
	token    *owner        // the receive token: rx, or that of the device's own engine if they share a socket
	sleeping atomic.Uint32 // 1: a producer of work must call wakeSlow

	// Of the background goroutine.
	idlePasses  atomic.Uint32 // passes at the last call of NotifyIdle
	lastPasses  uint32        // passes at the last check
	polled      bool          // the program polls, as of the last check
	polledUntil ucs.Time      // when it counts as not polled, unless passes changes before

	_        ucs.Pad
	rx       owner
	passes   atomic.Uint32 // calls of Poll; approximate, because pollers count without a lock
	now      atomic.Int64  // ucs.Time, some passes old
	sinkCQ   *cq           // under token: the queue whose completions go to sinkTo
	sinkTo   []verbs.WC
	sinkN    int
	counts   counts // under token
	rxPacket packet // under token: the received packet

	lock       spinlock
	dirty      []*qp // queue pairs that send in a later pass; under lock
	spareDirty []*qp
	numDirty   atomic.Int32
	timed      []*qp // queue pairs with a timer; under lock
	// spareTimed is the memory of the previous such list, for reuse; under lock.
	spareTimed []*qp
	moderated  []*cq        // with delayed events, in the device's own engine; under lock
	numTimed   atomic.Int32 // queue pairs and completion queues with a timer
	nextTimer  atomic.Int64 // lower bound of the times in timed; ucs.Time
	_          ucs.Pad
}

// init prepares an engine of d.
func (e *engine) init(d *device) {
	e.d, e.token = d, &d.own.rx
	e.nextTimer.Store(int64(never))
	e.now.Store(int64(d.clock()))
	if d.kind == overInproc {
		e.inbox.init(d.conf.Depth)
		e.token = &e.rx
	}
}

// addEngine adds an engine. The caller holds d.mu.
func (d *device) addEngine() *engine {
	e := new(engine)
	e.init(d)
	all := append(slices.Clone(*d.engines.Load()), e)
	d.engines.Store(&all)
	d.wakeBackground() // it has to learn that there is another one
	return e
}

// removeEngine removes an engine without queue pairs. The caller holds d.mu. What is left in its
// inbox is for queue pairs that are closed.
func (d *device) removeEngine(e *engine) {
	all := slices.DeleteFunc(slices.Clone(*d.engines.Load()), func(o *engine) bool { return o == e })
	d.engines.Store(&all)
	d.closedCounts.addAll(&e.counts)
}

// bytes returns the size of the engine of a thread domain in bytes.
func (e *engine) bytes() uint64 { return sizeOf[engine]() + e.inbox.bytes() }

// engineOf returns the engine of a queue pair, the device's own if there is no such queue pair.
func (d *device) engineOf(num verbs.QPN) *engine {
	if len(*d.engines.Load()) > 1 {
		if q := d.qps.find(num); q != nil {
			return q.e
		}
	}
	return &d.own
}

// awaitReceivers returns once the goroutines that hold a receive token of the device now have
// released it.
func (d *device) awaitReceivers() {
	for _, e := range *d.engines.Load() {
		e.token.awaitRelease()
	}
}

// start opens the link and starts the background goroutine.
func (d *device) start() error {
	d.kind = d.conf.linkKind()
	d.own.init(d)
	d.engines.Store(&[]*engine{&d.own})
	if err := d.openLink(); err != nil {
		return err
	}
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
func (e *engine) tick(now ucs.Time) {
	e.now.Store(int64(now))
	if e.numTimed.Load() != 0 && now >= ucs.Time(e.nextTimer.Load()) && !e.token.held() {
		e.runTimers(now)
	}
}

// progress sends pending packets and handles received ones. It returns the number of
// received packets.
func (e *engine) progress() int {
	if e.numDirty.Load() != 0 {
		e.flushDirty()
	}
	if !e.mayReceive() || !e.token.tryAcquire() {
		return 0
	}
	n := e.d.link.receive(e, ucs.Time(e.now.Load()))
	e.rxPacket.dropPayload()
	e.token.release()
	if n == 0 && e.numDirty.Load() != 0 {
		e.flushDirty() // sending may have been deferred until the socket is empty
	}
	return n
}

// progressInto is progress, with the completions of c written directly to wcs. It returns
// the number of completions.
func (e *engine) progressInto(c *cq, wcs []verbs.WC) int {
	n := e.passes.Load() + 1
	cpu.StoreRelease32(&e.passes, n)
	if e.numDirty.Load() != 0 {
		e.flushDirty()
	}
	numCQEs := 0
	if e.mayReceive() && e.token.tryAcquire() {
		e.sinkCQ, e.sinkTo, e.sinkN = c, wcs, 0
		n := e.d.link.receive(e, ucs.Time(e.now.Load()))
		e.rxPacket.dropPayload()
		numCQEs = e.sinkN
		e.sinkCQ, e.sinkTo = nil, nil
		e.token.release()
		if n == 0 && e.numDirty.Load() != 0 {
			e.flushDirty() // sending may have been deferred until the socket is empty
		}
	}
	if n%clockEvery == 0 { // after receiving: what the timers wait for may have arrived
		e.tick(e.d.clock())
	}
	return numCQEs
}

// markDirty makes a later pass send what q has to send, and process its deferred packets. The
// caller owns q or has deferred a packet. No work is lost: that pass becomes the owner after the
// present one, or sets ownPending, so that the present one looks for work before it leaves.
func (e *engine) markDirty(q *qp) {
	if q.dirty.Load() || q.dirty.Swap(true) {
		return
	}
	e.lock.lock()
	e.dirty = append(e.dirty, q)
	e.numDirty.Store(int32(len(e.dirty)))
	e.lock.unlock()
	e.wake()
}

// flushDirty runs all queue pairs in dirty.
func (e *engine) flushDirty() {
	e.lock.lock()
	qs := e.dirty
	e.dirty, e.spareDirty = e.spareDirty[:0], nil
	e.numDirty.Store(0)
	e.lock.unlock()
	for i, q := range qs {
		qs[i] = nil
		q.dirty.Store(false)
		q.transmitOrNotify()
	}
	e.lock.lock()
	e.spareDirty = qs[:0]
	e.lock.unlock()
}

// setTimer makes the engine check q's timers by time when. The caller owns q.
func (e *engine) setTimer(q *qp, when ucs.Time) {
	if !q.isTimed {
		q.isTimed = true
		e.addTimed(q, when)
		return
	}
	e.lowerNextTimer(when)
	e.wake()
}

// lowerNextTimer lowers nextTimer to when.
func (e *engine) lowerNextTimer(when ucs.Time) {
	for {
		old := e.nextTimer.Load()
		if int64(when) >= old || e.nextTimer.CompareAndSwap(old, int64(when)) {
			return
		}
	}
}

// runTimers checks the timers of all queue pairs in timed.
func (e *engine) runTimers(now ucs.Time) {
	e.lock.lock()
	qs := e.timed
	e.timed, e.spareTimed = e.spareTimed[:0], nil
	e.numTimed.Store(0)
	e.nextTimer.Store(int64(never))
	e.lock.unlock()
	for _, q := range qs {
		if !q.tryAcquire() { // its owner is active: check again later
			e.addTimed(q, now)
			continue
		}
		q.isTimed = false
		if q.numDeferred.Load() != 0 { // what the timers wait for may be among these packets
			q.handleDeferred()
		}
		if next := q.expireTimers(now); next != never {
			e.setTimer(q, next)
		}
		q.transmitAndRelease()
	}
	clear(qs) // keep no reference to a closed queue pair
	e.lock.lock()
	e.spareTimed = qs[:0]
	moderated := len(e.moderated) != 0
	e.lock.unlock()
	if moderated {
		e.expireEvents(now)
	}
}

// addTimed adds q to timed, to be checked by time when.
func (e *engine) addTimed(q *qp, when ucs.Time) {
	e.lock.lock()
	e.timed = append(e.timed, q)
	e.numTimed.Store(int32(len(e.timed) + len(e.moderated)))
	e.lock.unlock()
	e.lowerNextTimer(when)
	e.wake()
}

// postCQE posts a completion. It bypasses the queue and writes to sinkTo if the polling
// goroutine owns q, and c is empty, usable and not armed.
func (q *qp) postCQE(c *cq, w *verbs.WC, solicited bool) {
	if e := q.rx; e != nil && e.sinkCQ == c && e.sinkN < len(e.sinkTo) && c.armed.Load() == armedNot && c.empty() && c.state.Load() == cqUsable {
		e.sinkTo[e.sinkN] = *w
		e.sinkN++
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
	now := ucs.Time(q.e.now.Load())
	more := q.d.link.send(q, now)
	q.txPacket.dropPayload()
	if more {
		q.e.markDirty(q)
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
		q.e.setTimer(q, now+maxTimerDelay)
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
