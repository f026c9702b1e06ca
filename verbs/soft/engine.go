package soft

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

const (
	maxDrain   = 64 // packets that one pass handles
	clockEvery = 16 // passes between two readings of the clock
)

// engine is the part of a device that moves packets.
type engine struct {
	qps    qpTable
	gid    verbs.GID
	lid    uint16
	index  uint32 // in the Switch
	kind   linkKind
	in     *inbox // of overInproc
	udp    *udpPort
	fab    *fabricLink
	faulty *faultUDP // of overUDP with faults

	_      ucs.Pad
	rx     owner         // the receive token
	passes atomic.Uint32 // calls of Poll; approximate, because pollers count without a lock
	now    atomic.Int64  // ucs.Time, some passes old
	sinkCQ *cq           // under rx: the queue whose completions go to sinkTo
	sinkTo []verbs.WC
	sinkN  int
	counts counts // under rx
	come   packet // under rx: the received packet

	drained atomic.Uint32 // 1: the last pass found the socket empty

	lock   latch
	dirty  []*qp // queue pairs that send in a later pass; under lock
	spare  []*qp
	dirtyN atomic.Int32
	timed  []*qp // queue pairs with a timer; under lock
	// spareTimed is the memory of the previous such list, for reuse; under lock.
	spareTimed []*qp
	timedN     atomic.Int32
	nextDue    atomic.Int64 // lower bound of the times in timed; ucs.Time

	lookers lookers
	back    background
}

// start opens the link and starts the background goroutine.
func (d *device) start() error {
	d.nextDue.Store(int64(never))
	if err := d.openLink(); err != nil {
		return err
	}
	d.now.Store(int64(d.clock()))
	if err := d.startBackground(); err != nil {
		return errors.Join(err, d.closeLink())
	}
	return nil
}

// stop stops the background goroutine and closes the link. The device has no queue
// pairs any more.
func (d *device) stop() error {
	err := errors.Join(d.stopBackground(), d.closeLink())
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
	if d.timedN.Load() != 0 && now >= ucs.Time(d.nextDue.Load()) && !d.rx.taken() {
		d.runTimers(now)
	}
}

// pass sends pending packets and handles received ones. It returns the number of
// received packets.
func (d *device) pass() int {
	if d.dirtyN.Load() != 0 {
		d.flushDirty()
	}
	if !d.arrived() || !d.rx.take() {
		return 0
	}
	n := d.receive(ucs.Time(d.now.Load()))
	d.come.letGo()
	d.rx.giveAlone()
	if n == 0 && d.dirtyN.Load() != 0 {
		d.flushDirty() // sending may have been deferred until the socket is empty
	}
	return n
}

// progressInto is pass, with the completions of c written directly to wcs. It returns
// the number of completions.
func (d *device) progressInto(c *cq, wcs []verbs.WC) int {
	n := d.passes.Load() + 1
	storeRelease32(&d.passes, n)
	if d.dirtyN.Load() != 0 {
		d.flushDirty()
	}
	got := 0
	if d.arrived() && d.rx.take() {
		d.sinkCQ, d.sinkTo, d.sinkN = c, wcs, 0
		now := ucs.Time(d.now.Load())
		n := 0
		if d.kind == overInproc {
			n = d.drain(now)
		} else {
			n = d.receive(now)
		}
		d.come.letGo()
		got = d.sinkN
		d.sinkCQ, d.sinkTo = nil, nil
		d.rx.giveAlone()
		if n == 0 && d.dirtyN.Load() != 0 {
			d.flushDirty() // sending may have been deferred until the socket is empty
		}
	}
	if n%clockEvery == 0 { // after receiving: what the timers wait for may have arrived
		d.tick(d.clock())
	}
	return got
}

// markDirty makes a later pass call q.run. The caller owns q. No work is lost: that run
// becomes the owner after the caller, or sets ownNote, so that the caller looks for work
// before it leaves.
func (d *device) markDirty(q *qp) {
	if q.dirty.Load() || q.dirty.Swap(true) {
		return
	}
	d.lock.lock()
	d.dirty = append(d.dirty, q)
	d.dirtyN.Store(int32(len(d.dirty)))
	d.lock.unlock()
	d.wake()
}

// flushDirty runs all queue pairs in dirty.
func (d *device) flushDirty() {
	d.lock.lock()
	qs := d.dirty
	d.dirty, d.spare = d.spare[:0], nil
	d.dirtyN.Store(0)
	d.lock.unlock()
	for i, q := range qs {
		qs[i] = nil
		q.dirty.Store(false)
		q.run()
	}
	d.lock.lock()
	d.spare = qs[:0]
	d.lock.unlock()
}

// due makes the engine check q's timers by time when. The caller owns q.
func (d *device) due(q *qp, when ucs.Time) {
	if !q.isTimed {
		q.isTimed = true
		d.putTimed(q, when)
		return
	}
	d.sooner(when)
	d.wake()
}

// sooner lowers nextDue to when.
func (d *device) sooner(when ucs.Time) {
	for {
		old := d.nextDue.Load()
		if int64(when) >= old || d.nextDue.CompareAndSwap(old, int64(when)) {
			return
		}
	}
}

// runTimers checks the timers of all queue pairs in timed.
func (d *device) runTimers(now ucs.Time) {
	d.lock.lock()
	qs := d.timed
	d.timed, d.spareTimed = d.spareTimed[:0], nil
	d.timedN.Store(0)
	d.nextDue.Store(int64(never))
	d.lock.unlock()
	for _, q := range qs {
		if !q.take() { // its owner is active: check again later
			d.putTimed(q, now)
			continue
		}
		q.isTimed = false
		if next := q.expire(now); next != 0 {
			d.due(q, next)
		}
		q.leave()
	}
	clear(qs) // keep no reference to a closed queue pair
	d.lock.lock()
	d.spareTimed = qs[:0]
	d.lock.unlock()
}

// putTimed adds q to timed, to be checked by time when.
func (d *device) putTimed(q *qp, when ucs.Time) {
	d.lock.lock()
	d.timed = append(d.timed, q)
	d.timedN.Store(int32(len(d.timed)))
	d.lock.unlock()
	d.sooner(when)
	d.wake()
}

// forget removes a queue pair that is being closed from dirty and timed.
func (d *device) forget(q *qp) {
	d.lock.lock()
	d.timed = slices.DeleteFunc(d.timed, func(x *qp) bool { return x == q })
	d.dirty = slices.DeleteFunc(d.dirty, func(x *qp) bool { return x == q })
	d.lock.unlock()
}

// tell posts a completion. It bypasses the queue and writes to sinkTo if the polling
// goroutine owns q and nothing waits in c.
func (q *qp) tell(c *cq, w *verbs.WC, solicited bool) {
	if d := q.d; q.polled && d.sinkCQ == c && d.sinkN < len(d.sinkTo) && c.idle() {
		d.sinkTo[d.sinkN] = *w
		d.sinkN++
		return
	}
	if !c.push(w, solicited) {
		q.lost = true
	}
}

// arrive handles a packet received for q. The caller owns q.
func (q *qp) arrive(p *packet, now ucs.Time) {
	q.count(cntRxPackets, 1)
	q.count(cntRxBytes, uint64(p.n))
	info := p.op.Info()
	if !wire.PKeysMatch(p.pkey, q.pkey) {
		q.count(cntDroppedPKey, 1)
		return
	}
	if s := q.stateNow(); s < verbs.StateRTR || s == verbs.StateErr {
		q.count(cntDroppedQPN, 1)
		return
	}
	switch info.Kind {
	case wire.KindDatagram:
		if q.typ == verbs.UD {
			q.datagram(p, info)
			return
		}
	case wire.KindAck, wire.KindReadResponse:
		if q.typ == verbs.RC {
			if !q.answered(p) {
				q.answerMissing(p, now)
			} else if len(q.req.reorder.held) != 0 {
				q.drainAnswers(now)
			}
			return
		}
	case wire.KindSend, wire.KindWrite, wire.KindReadRequest, wire.KindAtomic:
		if q.typ == verbs.RC {
			q.requested(p, info, now)
			if len(q.rsp.reorder.held) != 0 {
				q.drainRequests(p.ackReq, now)
			}
			if q.rsp.soon && q.rsp.long { // the ACK of a whole segment batch lets its sender continue
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
	if q.lost {
		q.endLost()
	}
	s := q.stateNow()
	if s == verbs.StateErr || s == verbs.StateSQE {
		q.flushIn(s)
		return
	}
	if s < verbs.StateRTR {
		return
	}
	q.looks()
	if q.typ == verbs.UD {
		if q.sendDatagrams() {
			q.d.markDirty(q)
		}
		return
	}
	now := ucs.Time(q.d.now.Load())
	more := q.d.kind == overUDP && q.waits(now) || q.send(now)
	q.out.letGo()
	if more {
		q.d.markDirty(q)
	}
	r := &q.rsp
	if r.fatal && !r.due && r.asked == 0 {
		q.enterErr()
		return
	}
	if (more || q.req.una != q.req.psn) && !q.isTimed {
		q.d.due(q, now+firstLook)
	}
	q.rest()
}

// firstLook is the longest time until the retransmission timer of a sent packet starts.
const firstLook = ucs.Time(100_000)

// rest raises EventSQDrained once the send queue of a draining queue pair is drained.
func (q *qp) rest() {
	r := &q.req
	if q.drain && q.stateNow() == verbs.StateSQD && r.una == r.psn && r.sent == 0 && (r.tx == q.sq.end() || !q.sq.at(r.tx).began) {
		q.drain = false
		q.d.raise(verbs.AsyncEvent{Type: verbs.EventSQDrained, QP: q})
	}
}

// flushIn completes queued work requests with WCFlushErr in error state s.
func (q *qp) flushIn(s verbs.QPState) {
	q.flushSends()
	if s == verbs.StateErr && q.srq == nil {
		for q.rq.take(&q.rsp.recv) {
			q.endRecv(verbs.WCFlushErr)
		}
	}
}
