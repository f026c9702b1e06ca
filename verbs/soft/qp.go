package soft

import (
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// qp is a queue pair.
//
// A goroutine becomes the owner of a queue pair through its owner word, and only the
// owner runs its requester, responder and completer. Fields after owner belong to the
// owner, except the atomics and what lateLock guards. Posters write the send queue's
// tail under the posters' lock.
type qp struct {
	d      *device
	pd     *pd
	num    verbs.QPN
	typ    verbs.QPType
	sigAll bool
	ops    uint32 // accepted opcodes, of sendOps
	sendCQ *cq
	recvCQ *cq
	srq    *srq
	recvPD *pd // domain of the receive buffers: the SRQ's, or pd
	caps   verbs.QPCaps

	ctl  sync.Mutex   // serializes Modify and Close
	attr verbs.QPAttr // guarded by ctl; adopt copies what the engine needs

	state atomic.Uint32 // verbs.QPState; written by the owner
	sq    sendQueue
	rq    recvRing

	_ ucs.Pad
	owner
	to     route
	dest   verbs.QPN
	mtu    int
	pkey   uint16
	qkey   uint32
	access verbs.Access
	short  int // longest message of the in-process fast path; -1: none
	// inlined is the longest inline data that fillShort takes; -1: none.
	inlined  int
	shortUDP bool       // the QP has the UDP fast path
	sealed   wire.Alike // ICRC caches of the UDP fast path: sent and received packets
	came     wire.Alike
	known    bool // a packet has been received: EventCommEst was raised
	closed   bool
	looking  atomic.Bool // in engine.lookers
	lookAt   int         // index there, guarded by its lock
	polled   bool        // the holder of the receive token owns it: completions may go straight to the poller
	lost     bool        // a completion queue is unusable: the QP must enter the error state
	drain    bool        // SQD: raise EventSQDrained when the send queue is drained
	req      requester
	rsp      responder
	out      packet // scratch for sending
	counts   counts
	isTimed  bool     // in engine.timed
	pass     uint32   // engine.passes at the last post
	heldAt   ucs.Time // since when posted packets wait to be batched; 0: none do
	// peerHead is how many packets the in-process peer had taken from its inbox at the
	// last call of peerTakes.
	peerHead uint32

	lateLock  latch
	late      []late // packets received while another goroutine owned the QP
	spareLate []late
	lateN     atomic.Int32
	dirty     atomic.Bool // in engine.dirty
}

// QPN returns the queue pair number.
func (q *qp) QPN() verbs.QPN { return q.num }

func (q *qp) stateNow() verbs.QPState { return verbs.QPState(q.state.Load()) }

// newQP creates a queue pair in state Reset. pd.createQP has checked the config.
func (d *device) newQP(p *pd, c *verbs.QPConfig) (*qp, error) {
	q := &qp{
		d: d, pd: p, typ: c.Type, ops: sendOps[c.Type], sigAll: c.SignalAll, caps: c.Caps,
		sendCQ: c.SendCQ.(*cq), recvCQ: c.RecvCQ.(*cq), recvPD: p,
	}
	if c.SRQ != nil {
		q.srq = c.SRQ.(*srq)
		q.recvPD = q.srq.pd
	}
	q.sq.init(c.Caps.MaxSend)
	q.rq.init(c.Caps.MaxRecv, p.single())
	q.sq.single = p.single()
	q.rsp.ended = wire.PlaceOnly
	q.mtu = d.activeMTU().Bytes()
	q.short, q.shortUDP = q.shortest(), q.goesShort()
	if q.inlined = -1; q.typ == verbs.RC {
		q.inlined = q.caps.MaxInline
	}
	if q.typ == verbs.UD && d.kind == overUDP && !c.NoClass {
		if err := d.udp.askClass(); err != nil {
			return nil, err
		}
	}
	if err := d.qps.add(q); err != nil {
		return nil, err
	}
	d.lookers.reserve(d.qps.n)
	return q, nil
}

// PostRecv queues receives. In the error state the engine flushes them at once.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, ucs.Status) {
	s := q.stateNow()
	if s == verbs.StateReset || q.srq != nil {
		return 0, ucs.InvalidParam
	}
	n, st := q.rq.post(wrs)
	if s == verbs.StateErr {
		q.run()
	}
	return n, st
}

// PostSend queues work requests and sends what the link accepts.
//
// hot: BenchmarkPingPong.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, ucs.Status) {
	if q.stateNow() < verbs.StateRTS {
		return 0, ucs.InvalidParam
	}
	owned := q.enter() // also with a thread domain: the lock comes with the ownership for free
	if owned && len(wrs) == 1 && q.sendShort(&wrs[0]) {
		if !q.giveAll() {
			q.leave()
		}
		return 1, ucs.OK
	}
	if owned && len(wrs) == 1 && q.postOne(&wrs[0]) {
		q.leaveQuietly()
		return 1, ucs.OK
	}
	return q.postSlow(wrs, owned)
}

// postSlow is the general case of PostSend. The caller holds the posters' lock. If
// owned is set it also owns the queue pair.
func (q *qp) postSlow(wrs []verbs.SendWR, owned bool) (int, ucs.Status) {
	n, st := q.post(wrs, owned)
	switch {
	case n == 0:
		q.unlock()
		if owned {
			q.leaveQuietly()
		}
	case owned && q.holdsBack():
		if !q.giveAll() {
			q.leave()
		}
	case owned:
		q.unlock() // other goroutines may post while this one sends
		q.leave()
	case !q.posted():
	case q.holdsBack():
		q.leaveQuietly()
	default:
		q.leave()
	}
	return n, st
}

// postersLeft waits until the goroutine that is posting now has published its work
// requests or released the posters' lock.
func (q *qp) postersLeft() {
	t := q.sq.tail.pos()
	for k := 0; q.word.Load()&ownPost != 0 && q.sq.tail.pos() == t; k++ {
		relax(k)
	}
}

// wants reports whether transmit may have something to do.
func (q *qp) wants() bool {
	s := &q.rsp
	return q.req.tx != q.sq.end() || s.soon || s.asked != 0 || s.fatal || q.lost || q.drain ||
		q.stateNow() != verbs.StateRTS
}

// leaveQuietly releases the ownership. It sends only if another goroutine has marked
// pending work.
func (q *qp) leaveQuietly() {
	if !q.give() {
		q.leave()
	}
}

// run acquires the ownership and sends, or marks pending work for the current owner.
func (q *qp) run() {
	if q.takeOrNote() {
		q.leave()
	}
}

// leave sends what is to be sent and releases the ownership. It repeats this while
// other goroutines mark pending work, so no posted work is left behind.
func (q *qp) leave() {
	for {
		if q.lateN.Load() != 0 {
			q.takeLate()
		}
		if q.wants() {
			q.transmit()
		}
		q.polled = false
		if q.give() {
			return
		}
	}
}

// enterErr moves the queue pair to the error state and flushes everything queued. With
// an SRQ it raises EventQPLastWQEReached. The owner calls it.
func (q *qp) enterErr() {
	if s := q.stateNow(); s == verbs.StateErr || s == verbs.StateReset {
		return
	}
	q.state.Store(uint32(verbs.StateErr))
	q.flush()
	if q.srq != nil {
		q.d.raise(verbs.AsyncEvent{Type: verbs.EventQPLastWQEReached, QP: q})
	}
}

// endLost raises EventQPFatal and enters the error state, because a completion queue is
// unusable.
func (q *qp) endLost() {
	q.lost = false
	if s := q.stateNow(); s != verbs.StateErr && s != verbs.StateReset {
		q.d.raise(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: q})
		q.enterErr()
	}
}

// flush completes all queued work requests with WCFlushErr, in order.
func (q *qp) flush() {
	q.flushSends()
	q.req.reorder.drop()
	q.rsp.reorder.drop()
	if q.rsp.held {
		q.rsp.held = false
		q.endRecv(verbs.WCFlushErr)
	}
	if q.srq != nil {
		return
	}
	for q.rq.take(&q.rsp.recv) {
		q.endRecv(verbs.WCFlushErr)
	}
}

func (q *qp) count(c counter, n uint64) { q.counts.add(c, n) }
