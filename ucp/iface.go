package ucp

import (
	"encoding/binary"
	"time"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// workerIface is a worker's context of one iface, and the uct.Handler of the iface's callbacks.
// The fields resumeDelay and inAsyncTurn belong to resumeUnattended; the worker's lock guards them.
type workerIface struct {
	t           *thread
	iface       uct.Iface
	fetcher     uct.Fetcher // the iface, if peers expose memory to it; nil: none can
	info        uct.IfaceInfo
	domain      openDomain
	index       int
	state       ifaceState
	rxConns     map[uint32]*rxConn
	lastRx      *rxConn        // the rx connection looked up last
	reusable    []uct.Reusable // closed regions that can be registered again
	resumeDelay time.Duration  // delay until the next turn of resumeUnattended
	inAsyncTurn bool           // a turn of resumeUnattended is running
	rxChecks    int            // reasons to check each message's rx connection: each failed one, and an exceeded budget
}

// ifaceState says which goroutine polls an iface, and when.
type ifaceState uint8

const (
	// ifaceInactive: inactive. Each slow look (doPeriodic) progresses it.
	ifaceInactive ifaceState = iota
	// ifaceArmed: inactive, armed, and not progressed since. Its EventFD becomes readable
	// when there is something to progress.
	ifaceArmed
	// ifaceActive: in Worker.active. Each pass progresses the iface, which disarms it. So a
	// sleeper arms it again before each sleep, also after its last endpoint was closed.
	ifaceActive
)

func (wi *workerIface) name() string { return wi.info.Transport + "/" + wi.info.Device }

// HandleAM receives messages. It is the fast path of receiving: a batch of one
// message needs no loop.
//
//hot:bench BenchmarkTagPair
//go:nosplit
func (wi *workerIface) HandleAM(mem []byte, ds []uct.Desc) uint64 {
	if len(ds) == 1 && wi.rxChecks == 0 {
		d, w := &ds[0], wi.t
		data := mem[d.Off:][:d.Len]
		if d.ID == wire.Eager {
			w.count.Inc(cntReceived)
			w.handleEager(d.Header, data)
			return 0
		}
		if d.ID == wire.User {
			w.count.Inc(cntReceived)
			kept := uint64(0) // without a branch
			if wi.handleUserFast(d, data) {
				kept = 1 // the message's memory is retained
			}
			return kept
		}
	}
	return wi.handleBatch(mem, ds)
}

// handleBatch is HandleAM for batches of several messages, for messages of the protocol,
// and while rx connections are checked (rxChecks). It returns a bit for each message whose
// memory is kept.
//
//go:noinline
func (wi *workerIface) handleBatch(mem []byte, ds []uct.Desc) uint64 {
	w := wi.t
	w.count.Add(cntReceived, uint64(len(ds)))
	kept := uint64(0)
	for i := range ds {
		d := &ds[i]
		data := mem[d.Off:][:d.Len]
		if d.ID == wire.Eager && wi.rxChecks == 0 {
			w.handleEager(d.Header, data)
			continue
		}
		if d.ID == wire.User && wi.rxChecks == 0 {
			if wi.handleUserFast(d, data) {
				kept |= 1 << i
			}
			continue
		}
		if wi.handleOther(d, data) {
			kept |= 1 << i
		}
	}
	return kept
}

// HandleEvents completes operations that were InProgress.
func (wi *workerIface) HandleEvents(es []uct.Event) {
	w := wi.t
	for i := range es {
		e := &es[i]
		k := w.slab.Find(uint64(e.Token))
		if k == 0 || w.slab.Slots[k].State != request.StateLive {
			continue
		}
		s := &w.slab.Slots[k]
		t := request.As[rmaOp](s)
		posting := (s.Op == request.Put || s.Op == request.Get) && t.off < t.length
		if s.Parts > 1 || posting {
			if s.Parts--; s.Status == ucs.OK { // one of several parts
				s.Status = e.Status
			}
			continue
		}
		s.Parts = 0
		if s.Op == request.Fetch || s.Op == request.GetUint64 {
			f := request.As[wordOp](s)
			f.key = e.Value
			if s.Op == request.GetUint64 && f.form&formBounced != 0 {
				f.key = binary.LittleEndian.Uint64(w.slab.Bufs[k])
			}
		}
		st := e.Status
		if s.Status != ucs.OK {
			st = s.Status
		}
		if l := &w.lanes[s.Lane]; st == ucs.PeerFailed && l.ep != nil && l.state != laneFailed && l.iface == uint32(wi.index) {
			w.awaitReport(k) // the failure is one of the lane's connection, which wi reports
			continue
		}
		w.end(k, st)
	}
}

// HandlePending retries operations that wait on a lane's pending queue. If the lane is
// stalled it moves the rest of ts to the stalled endpoint. A turn of the async goroutine is
// offered only the first of the waiting operations. It moves none, since it would move them
// behind those that were posted later.
func (wi *workerIface) HandlePending(ts []uct.Token) int {
	w := wi.t
	w.resuming = true
	n := wi.resume(ts)
	for !wi.inAsyncTurn && n < len(ts) && w.requeueStalled(ts[n]) {
		n++
		n += wi.resume(ts[n:])
	}
	w.resuming = false
	if w.numDraining > 0 {
		for i := range w.lanes {
			if l := &w.lanes[i]; l.state == laneDraining && l.pending == 0 {
				w.closeIfDrained(uint32(i))
			}
		}
	}
	return n
}

// resume retries the operations ts, in order, until one gets NoResource, and returns how
// many it retried. Control messages on an operation's lane are sent before it. A token
// whose operation has completed is skipped.
func (wi *workerIface) resume(ts []uct.Token) int {
	w := wi.t
	for n, t := range ts {
		i := w.slab.Find(uint64(t))
		if i == 0 || w.slab.Slots[i].State != request.StateLive {
			continue // canceled in the meantime
		}
		if lane := w.slab.Slots[i].Lane; w.lanes[lane].pendingControl.Head != 0 {
			if !w.sendPendingControl(lane) {
				return n
			}
			if w.slab.Find(uint64(t)) == 0 {
				continue // it was a control message itself
			}
		}
		switch st := w.operations[w.slab.Slots[i].Op].progress(w, i); st {
		case ucs.NoResource:
			return n
		case ucs.InProgress:
			w.clearPending(i)
		case ucs.Busy: // it moved to the end of the queue
		default:
			w.end(i, st)
		}
	}
	return len(ts)
}

// handleOther receives all messages but eager tag and active messages in one piece, and
// every message while an rx connection has to be checked. It reports whether the
// message's memory is retained.
//
//go:noinline
func (wi *workerIface) handleOther(d *uct.Desc, data []byte) bool {
	rx := wi.rxConn(d.RxConn)
	if rx.failed {
		wi.t.count.Inc(cntProtocolError)
		return false
	}
	switch d.ID {
	case wire.Eager:
		if wi.t.matching.budget.exhausted {
			rx.requestRndvOnly()
		}
		wi.t.handleEager(d.Header, data)
	case wire.Sync:
		wi.handleSync(rx, d.Header, data)
	case wire.SyncAck:
		wi.handleSyncAck(rx, d.Header, data)
	case wire.RTS:
		wi.handleRTS(rx, d.Header, data)
	case wire.RTR:
		wi.handleRTR(rx, d.Header, data, false)
	case wire.RTL:
		wi.handleRTR(rx, d.Header, data, true)
	case wire.Key:
		wi.handleKey(rx, d.Header, data)
	case wire.ReadDone:
		wi.handleReadDone(rx, d.Header, data)
	case wire.Data:
		wi.handleData(rx, d.Header, data)
	case wire.Reject:
		wi.handleReject(rx, d.Header, data)
	case wire.Cancel:
		wi.handleCancel(rx, d.Header, data)
	case wire.Abort:
		wi.handleAbort(rx, d.Header, data)
	case wire.FlowControl:
		wi.handleFlowControl(rx, d.Header, data)
	case wire.First:
		wi.handleFirst(rx, d.Header, data)
	case wire.Next:
		wi.handleNext(rx, d.Header, data)
	case wire.Peer:
		wi.handlePeerAddress(rx, d.Header, data)
	case wire.Put:
		wi.handlePut(rx, d.Header, data)
	case wire.Get:
		wi.handleGet(rx, d.Header, data)
	case wire.AtomicRequest:
		wi.handleAtomic(rx, d.Header, data)
	case wire.Flush:
		wi.handleFlush(rx, data)
	case wire.GetReply:
		wi.handleGetReply(rx, d.Header, data)
	case wire.Reply:
		wi.handleReply(rx, d.Header, data)
	case wire.User:
		if wi.t.matching.budget.exhausted {
			rx.requestRndvOnly()
		}
		return wi.handleUserSlow(d, data)
	case wire.UserFirst:
		if wi.t.matching.budget.exhausted {
			rx.requestRndvOnly()
		}
		wi.handleUserFirst(rx, d.Header, data)
	case wire.UserRTS:
		wi.handleUserRTS(rx, d.Header, data)
	default:
		wi.protocolError(rx)
	}
	return false
}
