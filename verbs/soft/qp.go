package soft

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// qp is a queue pair.
//
// A goroutine becomes the owner of a queue pair through its owner word, and only the
// owner runs its requester, responder and completer. Fields after owner belong to the
// owner, except the atomics and what deferredLock guards. Posters write the send queue's
// tail under the posters' lock.
type qp struct {
	d    *device
	e    *engine // that it belongs to, for good
	pd   *pd
	uuar *uuar // nil without Config.Adapter
	num  verbs.QPN
	typ  verbs.QPType
	ops  uint32 // accepted opcodes, of sendOps
	// dataOps are the opcodes of its packets.
	dataOps *packetOps
	// alwaysFlags are flags of every send work request: SendSignaled or none.
	alwaysFlags verbs.SendFlags
	sendCQ      *cq
	recvCQ      *cq
	srq         *srq
	recvPD      *pd // domain of the receive buffers: the SRQ's, or pd
	caps        verbs.QPCaps

	controlMu sync.Mutex   // serializes Modify and Close
	attr      verbs.QPAttr // guarded by ctl; adopt copies what the engine needs
	numGroups int          // multicast groups that it is attached to; guarded by groups.mu

	state atomic.Uint32 // qpState; written by the owner
	sq    sendQueue
	rq    recvRing

	_ ucs.Pad
	owner
	route   route
	dest    verbs.QPN
	mtu     int
	pkey    uint16
	qkey    uint32
	access  verbs.Access
	icrc    udp.ICRCCheck // how ICRCs of received packets are checked, over UDP
	fastMax int           // longest message of the in-process fast path; -1: none
	// fastInline is the longest inline data that fillFast takes; -1: none.
	fastInline   int
	fastUDPMax   int            // longest inline data of the UDP fast path; -1: none
	txICRC       wire.ICRCCache // ICRC caches of the UDP fast path: sent and received packets
	rxICRC       wire.ICRCCache
	memoryUser   atomic.Int32 // place in device.memoryUsers, from 1 on; 0: not in it
	rx           *engine      // the engine whose receive token the owner holds: completions may go straight to its poller; nil: none
	failedCQ     *cq          // a completion queue that became unusable: the QP must enter the error state; nil: none
	req          requester
	rsp          responder
	txPacket     packet // scratch for sending
	counts       counts
	isTimed      bool     // in engine.timed
	lastPasses   uint32   // e.passes at the last post
	delayedSince ucs.Time // since when posted packets wait to be batched; 0: none do
	// peerConsumed is how many packets the in-process peer had taken from its inbox at the
	// last call of peerConsumes.
	peerConsumed uint32

	deferredLock  spinlock
	deferred      []deferredPacket // packets received while another goroutine owned the QP
	spareDeferred []deferredPacket
	numDeferred   atomic.Int32
	dirty         atomic.Bool // in engine.dirty
}

// QPN returns the queue pair number.
func (q *qp) QPN() verbs.QPN { return q.num }

// PostSendPoll implements verbs.PostPoller. It saves nothing over the two calls.
func (q *qp) PostSendPoll(wrs []verbs.SendWR, c verbs.CQ, wcs []verbs.WC) (posted int, st ucs.Status, polled int) {
	posted, st = q.PostSend(wrs)
	return posted, st, c.Poll(wcs)
}

// loadState returns the state as the program sees it, the low byte of qpState.
func (q *qp) loadState() verbs.QPState { return verbs.QPState(q.state.Load()) }

// newQP creates a queue pair in state Reset. pd.createQP has checked the config.
func (d *device) newQP(p *pd, c *verbs.QPConfig, to objects.Queues[*cq, *srq]) (*qp, error) {
	q := &qp{
		d: d, e: d.engineFor(p), pd: p, typ: c.Type, ops: sendOps[c.Type], dataOps: &dataOps, caps: c.Caps,
		sendCQ: to.Send, recvCQ: to.Recv, srq: to.SRQ, recvPD: p,
	}
	if q.srq != nil {
		q.recvPD = q.srq.pd
	}
	for q.sq.max = minSends; q.sq.max < uint32(c.Caps.MaxSend); {
		q.sq.max *= 2
	}
	q.rq.init(c.Caps.MaxRecv, p.Single())
	q.postLock = ownPost
	if d.conf.Adapter != nil && d.conf.Adapter.NoQPLock && p.Single() {
		q.postLock = 0
	}
	if c.Caps.MaxInline > verbs.InlineLen {
		q.sq.longSlot = c.Caps.MaxInline
	}
	if c.SignalAll {
		q.alwaysFlags = verbs.SendSignaled
	}
	q.rsp = newResponder()
	q.mtu = d.activeMTU().Bytes()
	q.icrc = d.icrcCheck(true)
	q.fastMax, q.fastUDPMax, q.fastInline = -1, -1, -1
	if q.typ == verbs.UC {
		q.dataOps = &unreliableOps
	}
	if q.typ == verbs.RC {
		q.fastInline = min(q.caps.MaxInline, verbs.InlineLen)
		switch d.kind {
		case overInproc:
			q.fastMax = min(smallLen, q.caps.MaxInline)
		case overUDP:
			q.fastUDPMax = q.fastInline
		default: // no fast path
		}
	}
	if q.typ == verbs.UD && d.kind == overUDP && !c.NoClass {
		for _, u := range d.sockets {
			if err := u.EnableClass(); err != nil {
				return nil, err
			}
		}
	}
	if err := d.qps.add(q); err != nil {
		return nil, err
	}
	l := &d.memoryUsers // make room: the data path does not allocate
	l.lock.lock()
	l.list = slices.Grow(l.list, max(0, d.qps.n-len(l.list)))
	l.lock.unlock()
	return q, nil
}

// PostRecv queues receives. In the error state the engine flushes them at once.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, ucs.Status) {
	s := q.loadState()
	if s == verbs.StateReset || q.srq != nil {
		return 0, ucs.InvalidParam
	}
	n, st := q.rq.post(wrs)
	if s == verbs.StateErr {
		q.transmitOrNotify()
	}
	return n, st
}

// PostSend queues work requests and sends what the link accepts.
//
//hot:bench BenchmarkPingPong
func (q *qp) PostSend(wrs []verbs.SendWR) (int, ucs.Status) {
	if q.loadState() < verbs.StateRTS {
		return 0, ucs.InvalidParam
	}
	owned := q.lockPosts() // the lock comes with the ownership for free
	if owned && len(wrs) == 1 && q.sendFast(&wrs[0]) {
		if !q.tryReleaseAll() {
			q.transmitAndRelease()
		}
		return 1, ucs.OK
	}
	if owned && len(wrs) == 1 && q.postFast(&wrs[0]) {
		q.releaseOrTransmit()
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
		q.unlockPosts()
		if owned {
			q.releaseOrTransmit()
		}
	case owned && q.deferSend():
		if !q.tryReleaseAll() {
			q.transmitAndRelease()
		}
	case owned:
		q.unlockPosts() // other goroutines may post while this one sends
		q.transmitAndRelease()
	case !q.clearAndAcquire(q.postLock): // the present owner looks for posted work before it leaves
	case q.deferSend():
		q.releaseOrTransmit()
	default:
		q.transmitAndRelease()
	}
	return n, st
}

// releaseOrTransmit releases the ownership. It sends only if another goroutine has marked
// pending work.
func (q *qp) releaseOrTransmit() {
	if !q.tryRelease() {
		q.transmitAndRelease()
	}
}

// transmitOrNotify acquires the ownership and sends, or marks pending work for the current owner.
func (q *qp) transmitOrNotify() {
	if q.acquireOrNotify() {
		q.transmitAndRelease()
	}
}

// transmitAndRelease sends what is to be sent and releases the ownership. It repeats this while
// other goroutines mark pending work, so no posted work is left behind.
func (q *qp) transmitAndRelease() {
	for {
		if q.numDeferred.Load() != 0 {
			q.handleDeferred()
		}
		if s := &q.rsp; q.req.tx != q.sq.end() || s.ackState == ackDue || s.pendingResponses != 0 || s.flags&rspRefused != 0 ||
			q.failedCQ != nil || q.loadState() != verbs.StateRTS {
			q.transmit()
		}
		q.rx = nil
		if q.tryRelease() {
			return
		}
	}
}

// enterErr moves the queue pair to the error state and flushes everything queued. With
// an SRQ it raises EventQPLastWQEReached. The owner calls it.
func (q *qp) enterErr() {
	if s := q.loadState(); s == verbs.StateErr || s == verbs.StateReset {
		return
	}
	q.setState(qpErr)
	q.flushSends()
	q.req.reorder.reset()
	q.rsp.reorder.reset()
	if q.rsp.flags&rspRecvHeld != 0 {
		q.rsp.flags &^= rspRecvHeld
		q.completeRecv(verbs.WCFlushErr)
	}
	q.flushRecvs()
	if q.srq != nil {
		q.d.raise(verbs.AsyncEvent{Type: verbs.EventQPLastWQEReached, QP: q})
	}
}

// flushRecvs completes the queued receives with WCFlushErr, except those of an SRQ.
func (q *qp) flushRecvs() {
	if q.srq == nil {
		for q.rq.pop(&q.rsp.recv) {
			q.completeRecv(verbs.WCFlushErr)
		}
	}
}

func (q *qp) count(c counter, n uint64) { q.counts.add(c, n) }
