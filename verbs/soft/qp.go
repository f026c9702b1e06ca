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
// Fields from owner on belong to whoever holds it, but for the send queue's tail.
type qp struct {
	d      *device
	pd     *pd
	num    verbs.QPN
	typ    verbs.QPType
	sigAll bool
	ops    uint32 // sendOps
	sendCQ *cq
	recvCQ *cq
	srq    *srq
	recvPD *pd // of the memory that is received in: the shared queue's
	caps   verbs.QPCaps

	ctl  sync.Mutex   // Modify and Close, one at a time
	attr verbs.QPAttr // under ctl; the machines have copies of what they need

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
	short  int // shortest
	// inlined is the longest data that fillShort takes, -1: none.
	inlined  int
	shortUDP bool       // goesShort
	sealed   wire.Alike // of what is sent and of what came, on the short way over UDP
	came     wire.Alike
	known    bool // the first packet has come: EventCommEst was told
	closed   bool
	looking  atomic.Bool // in engine.lookers
	lookAt   int         // where, under its lock
	polled   bool        // in the hands of the one with the receive token
	lost     bool        // a completion queue is unusable
	drain    bool        // SQD: tell when the send queue has come to rest
	req      requester
	rsp      responder
	out      packet // scratch of sending
	counts   counts
	isTimed  bool     // in engine.timed
	pass     uint32   // engine.passes at the last post
	heldAt   ucs.Time // when the oldest post was held back; 0: none is
	// peerHead is how far the in-process peer had emptied its inbox when that was
	// full and was last looked at.
	peerHead uint32

	lateLock  latch
	late      []late // packets that came for another owner
	spareLate []late
	lateN     atomic.Int32
	dirty     atomic.Bool // in engine.dirty
}

// QPN is the number.
func (q *qp) QPN() verbs.QPN { return q.num }

func (q *qp) stateNow() verbs.QPState { return verbs.QPState(q.state.Load()) }

// newQP makes a queue pair in state Reset; pd has checked the config.
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

// PostRecv queues receives.
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

// PostSend queues work requests and sends what the link takes.
//
// hot: BenchmarkPingPong.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, ucs.Status) {
	if q.stateNow() < verbs.StateRTS {
		return 0, ucs.InvalidParam
	}
	owned := q.enter() // under a thread domain, too: it costs nothing beside the ownership
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

// postSlow is PostSend in general. The caller has the posters' lock; owned: and
// the queue pair.
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
		q.unlock() // others may post while this one sends
		q.leave()
	case !q.posted():
	case q.holdsBack():
		q.leaveQuietly()
	default:
		q.leave()
	}
	return n, st
}

// postersLeft returns when whoever posts now has moved on.
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

// leaveQuietly gives the ownership back and sends only where somebody asks.
func (q *qp) leaveQuietly() {
	if !q.give() {
		q.leave()
	}
}

// run takes the queue pair and sends, or has its owner do so.
func (q *qp) run() {
	if q.takeOrNote() {
		q.leave()
	}
}

// leave sends what is to be sent and gives the ownership back.
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

// enterErr ends everything that is queued; the first send work request with
// status, all others as flushed. The owner calls it.
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

// endLost ends a queue pair whose completions go nowhere any more.
func (q *qp) endLost() {
	q.lost = false
	if s := q.stateNow(); s != verbs.StateErr && s != verbs.StateReset {
		q.d.raise(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: q})
		q.enterErr()
	}
}

// flush ends what is queued, in order.
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
