package ucp

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/goucx/goucx/internal/race"
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
	address     []byte      // of a Thread: what it sends to peers, its own address and its worker's
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

// setIface sets the open iface.
func (wi *workerIface) setIface(f uct.Iface) {
	wi.iface = f
	wi.fetcher, _ = f.(uct.Fetcher)
	wi.t.polling.addCache(f)
}

func (wi *workerIface) name() string { return wi.info.Transport + "/" + wi.info.Device }

// HandleAM receives a batch of messages. It handles itself, without a call, the eager messages of
// eight bytes that the receives of a run accept, and an active message without a header at the end
// of the batch. The rest is for handleBatch. It returns a bit for each message whose memory is kept.
//
//hot:bench BenchmarkTagPair BenchmarkAMPair
//go:nosplit
func (wi *workerIface) HandleAM(mem []byte, ds []uct.Desc) (kept uint64) {
	w := wi.t
	w.count.Add(cntReceived, uint64(len(ds)))
	if wi.rxChecks != 0 {
		return wi.handleBatch(mem, ds, 0)
	}
	n := 0
	for ; n < len(ds); n++ {
		d := &ds[n]
		if d.ID != wire.Eager || d.Len != 8 || !w.matching.posted.Accepts(d.Header) {
			break
		}
		i := int(w.matching.posted.Oldest()) // 0 if none: that slot has no buffer
		if i >= len(w.slab.Slots) || i >= len(w.slab.Bufs) {
			break
		}
		s, p := request.As[recvOp](&w.slab.Slots[i]), w.slab.Bufs[i]
		if len(p) < 8 || s.Flags != request.FlagHasResult {
			break
		}
		w.matching.posted.RemoveOldest()
		s.tag, s.length = d.Header, 8
		wire.CopyWord(p, mem, d.Off)
		s.State = request.StateDone
	}
	if n == len(ds) {
		return 0
	}
	d := &ds[n]
	h := w.am.fast[uint8(d.Header)]
	if uint16(d.ID)|uint16(d.Flags)<<8 != uint16(wire.User) || d.Header > math.MaxUint8 || h == nil || n+1 < len(ds) {
		return wi.handleBatch(mem, ds, n)
	}
	m := &w.am.m
	if race.Enabled {
		m.Header = nil
	}
	m.ID, m.Data, m.Len = AMID(d.Header), wire.Payload(mem, d.Off, d.Len), int(d.Len)
	w.am.inHandler, w.locked = true, true
	h(m)
	if len(w.callbacks.failures) > 0 || m.retained != nil || race.Enabled {
		w.endHandler()
	}
	w.am.inHandler, w.locked = false, false
	return 0
}

// endHandler does what is rare after a handler ran outside of the lock.
//
//go:noinline
func (w *thread) endHandler() {
	w.runFailureCalls()
	w.am.m.retained = nil
	if race.Enabled {
		w.am.m.poison()
	}
}

// handleBatch receives the messages of a batch from the n-th on. It makes no call for an active message without a
// header but that of the handler.
//
//hot:bench BenchmarkAMPair
//go:noinline
func (wi *workerIface) handleBatch(mem []byte, ds []uct.Desc, n int) (kept uint64) {
	w := wi.t
	for ; n < len(ds); n++ {
		d := &ds[n]
		data := mem[d.Off:][:d.Len]
		switch {
		case wi.rxChecks != 0 && !wi.checkRx(d):
		case d.ID == wire.Eager:
			if i := w.matching.posted.Match(d.Header); i != 0 {
				w.deliver(i, d.Header, data)
			} else {
				w.queueUnexpected(d.Header, data)
			}
		case d.ID != wire.User:
			// What the next message's fetch needs is on its way while this message is handled.
			if next := n + 1; next < len(ds) && ds[next].ID == wire.RTS && ds[next].Len == wire.RTSLen && wi.fetcher != nil {
				id, _ := wire.ParseRTS(mem[ds[next].Off:][:wire.RTSLen])
				wi.fetcher.Expect(ds[next].RxConn, id)
			}
			wi.handleOther(d, data)
		default:
			h := w.am.fast[uint8(d.Header)]
			if d.Header>>8|uint64(d.Flags) != 0 || h == nil {
				if wi.handleUser(d, data) {
					kept |= 1 << n
				}
				continue
			}
			m := &w.am.m
			if race.Enabled {
				m.Header = nil
			}
			m.ID, m.Data, m.Len = AMID(d.Header), data, len(data)
			w.am.inHandler, w.locked = true, true
			h(m)
			if len(w.callbacks.failures) > 0 || m.retained != nil || race.Enabled {
				w.endHandler()
			}
			w.am.inHandler, w.locked = false, false
		}
	}
	return kept
}

// checkRx looks at the connection of a message while rxChecks is not 0. It returns false if the
// message must be dropped, because the connection has failed.
//
//go:noinline
func (wi *workerIface) checkRx(d *uct.Desc) bool {
	rx := wi.rxConn(d.RxConn)
	if rx.failed {
		wi.t.count.Inc(cntProtocolError)
		return false
	}
	if (d.ID == wire.Eager || d.ID == wire.User || d.ID == wire.UserFirst) && wi.t.matching.budget.exhausted {
		rx.requestRndvOnly()
	}
	return true
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

// handleOther receives all messages but eager tag and active messages in one piece.
//
//go:noinline
func (wi *workerIface) handleOther(d *uct.Desc, data []byte) {
	rx := wi.rxConn(d.RxConn)
	switch d.ID {
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
	case wire.UserFirst:
		wi.handleUserFirst(rx, d.Header, data)
	case wire.UserRTS:
		wi.handleUserRTS(rx, d.Header, data)
	default:
		wi.protocolError(rx)
	}
}
