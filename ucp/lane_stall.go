package ucp

import (
	"slices"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Stalled lanes.
//
// A lane is stalled while it must not send. Reasons are: too many emulated operations
// without a reply (emulMaxReplies); a fence between emulated operations and operations of
// the transport; a fence over several lanes; a send without a credit (lane_credit.go). A
// stalledEndpoint then takes the place of the lane's endpoint. It returns NoResource, so
// posted operations become pending, and it is their pending queue. Lane failover
// (lane_failover.go) uses it too, to keep the pending operations until they move to the new
// transport.
//
// Invariant: operations reach the transport in the order of posting, so that fences and
// flushes cover what was posted before them. This needs care in two places:
//
//   - When a lane is stalled, older operations may be in the transport's pending queue.
//     requeueStalled inserts them before everything posted since (numOlder counts them).
//   - When a lane is resumed, tryResumeLane retries the operations in order. When one gets
//     NoResource, it and all after it move to the transport's pending queue, so that no
//     flush overtakes them.
//
// Some operations pass a stalled lane: control messages, rendezvous data and reads,
// which the peer needs to complete its own operations, and flushes that have had their
// place already (bypassesStall). They have no order with the others.

// stalledEndpoint takes the place of the endpoint of a stalled lane. Operations posted
// on it become pending, except for those that pass.
type stalledEndpoint struct {
	uct.Endpoint // the transport's
	pending      []uct.Token
	numOlder     int  // number of the first tokens of pending that came from the transport's pending queue
	resuming     bool // the lane is being resumed: operations go to the transport
	single       [1]uct.Token
}

// transport returns the lane's endpoint of its transport, stalled or not.
func (l *lane) transport() uct.Endpoint {
	if h, ok := l.ep.(*stalledEndpoint); ok {
		return h.Endpoint
	}
	return l.ep
}

// stalledEp returns the lane's stalledEndpoint, nil if the lane is not stalled.
func (l *lane) stalledEp() *stalledEndpoint {
	h, _ := l.ep.(*stalledEndpoint)
	return h
}

// stallLane stalls lane i. The pending queue of its transport is empty, or the transport
// is offering it to HandlePending.
func (w *thread) stallLane(i uint32) {
	l := &w.lanes[i]
	if h := l.stalledEp(); h != nil {
		if h.resuming {
			h.resuming, h.numOlder = false, 0
		}
		return
	}
	sw := w.emulLane(i)
	h := sw.stalled
	if h == nil {
		h = &stalledEndpoint{Endpoint: l.ep}
		sw.stalled = h
	}
	h.resuming, h.numOlder = false, 0
	l.ep = h
	l.setSlow(slowStalled, true)
	w.updateKeyFastPaths(i)
}

// tryResumeLane resumes lane i if no reason to stall it is left.
func (w *thread) tryResumeLane(i uint32) {
	l := &w.lanes[i]
	h := l.stalledEp()
	if h == nil || h.resuming || l.is(slowNoCredit) || l.state == laneFailed {
		return
	}
	if e := l.emul; e != nil && (e.outstanding >= emulMaxReplies || e.handled < e.stallUntil || e.fence != 0) {
		return // emulated operations or a fence require that the lane is stalled
	}
	h.resuming = true
	nested := w.resuming
	w.resuming = true
	wi, behind, k := w.ifaces[l.iface], false, 0
	for k < len(h.pending) && h.resuming && w.lanes[i].stalledEp() == h {
		h.single[0] = h.pending[k]
		if !behind && wi.resume(h.single[:]) == 1 {
			k++
			continue
		}
		if !h.resuming {
			break
		}
		switch st := h.Endpoint.PendingAdd(h.pending[k]); st {
		case ucs.Busy:
			behind = false
		case ucs.OK:
			behind = true
			k++
		default:
			t := h.pending[k]
			k++
			if n := w.slab.Find(uint64(t)); n != 0 && w.slab.Slots[n].State == request.StateLive {
				w.end(n, st)
			}
		}
	}
	w.resuming = nested
	h.pending = append(h.pending[:0], h.pending[k:]...)
	if l = &w.lanes[i]; h.resuming && l.stalledEp() == h {
		l.ep = h.Endpoint
		l.setSlow(slowStalled, false)
		w.updateKeyFastPaths(i)
	}
}

// requeueStalled moves t, which the transport of a stalled lane offers, to the
// stalledEndpoint, before operations posted since. An operation that passes goes to the
// end of the transport's queue: by then that queue has nothing else that could overtake
// operations in the stalledEndpoint. requeueStalled returns false if the transport keeps t.
func (w *thread) requeueStalled(t uct.Token) bool {
	i := w.slab.Find(uint64(t))
	if i == 0 {
		return false
	}
	h := w.lanes[w.slab.Slots[i].Lane].stalledEp()
	switch {
	case h == nil || h.resuming:
		return false
	case bypassesStall(&w.slab.Slots[i]):
		return h.Endpoint.PendingAdd(t) == ucs.OK
	}
	h.pending = slices.Insert(h.pending, h.numOlder, t)
	h.numOlder++
	return true
}

// bypassesStall reports whether the operation in s passes a stalled lane. Such an operation is
// one that the peer needs or has requested, or a flush that has had its place among the
// lane's operations.
func bypassesStall(s *request.Slot) bool {
	switch s.Op {
	case request.Control, request.RndvRead, request.DrainLane:
		return true
	case request.Flush:
		return request.As[flushOp](s).stage != flushNew
	default:
		return s.Op.Sends() && request.As[sendOp](s).phase == phaseData
	}
}

// updateKeyFastPaths recomputes the fast paths of the keys that use lane i.
func (w *thread) updateKeyFastPaths(i uint32) {
	if w.locked {
		return // the fast paths are closed
	}
	peer := w.lanes[i].peer
	for k := range w.eps {
		if s := &w.eps[k]; s.state == epFree || s.peer != peer || w.cold[uint32(k)] == nil {
			continue
		}
		for c := range w.cold[uint32(k)].owned {
			if key, ok := c.(*RemoteKey); ok {
				key.closeFast()
				key.openFast()
			}
		}
	}
}

// The operations of a stalledEndpoint return NoResource until it is open.

func (h *stalledEndpoint) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	if h.resuming {
		return h.Endpoint.AMShort(id, hdr, p)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) AMUint64(id uct.AMID, hdr, v uint64) uct.Status {
	if h.resuming {
		return h.Endpoint.AMUint64(id, hdr, v)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) AMZcopy(id uct.AMID, hdr uint64, head []byte, v []uct.Vec, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.AMZcopy(id, hdr, head, v, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) ReserveAM(id uct.AMID, hdr uint64, n int) ([]byte, uct.Status) {
	if h.resuming {
		return h.Endpoint.ReserveAM(id, hdr, n)
	}
	return nil, ucs.NoResource
}

func (h *stalledEndpoint) PutShort(p []byte, addr uint64, k uct.RKey) uct.Status {
	if h.resuming {
		return h.Endpoint.PutShort(p, addr, k)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) PutUint64(v, addr uint64, k uct.RKey) uct.Status {
	if h.resuming {
		return h.Endpoint.PutUint64(v, addr, k)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) PutBcopy(p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.PutBcopy(p, addr, k, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) PutZcopy(v []uct.Vec, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.PutZcopy(v, addr, k, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) GetShort(p []byte, addr uint64, k uct.RKey) uct.Status {
	if h.resuming {
		return h.Endpoint.GetShort(p, addr, k)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) GetUint64(addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status) {
	if h.resuming {
		return h.Endpoint.GetUint64(addr, k, t)
	}
	return 0, ucs.NoResource
}

func (h *stalledEndpoint) GetBcopy(p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.GetBcopy(p, addr, k, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) GetZcopy(v []uct.Vec, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.GetZcopy(v, addr, k, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) Atomic32(op uct.AtomicOp, v uint32, addr uint64, k uct.RKey) uct.Status {
	if h.resuming {
		return h.Endpoint.Atomic32(op, v, addr, k)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) Atomic64(op uct.AtomicOp, v, addr uint64, k uct.RKey) uct.Status {
	if h.resuming {
		return h.Endpoint.Atomic64(op, v, addr, k)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) Fetch32(op uct.AtomicOp, v, cmp uint32, addr uint64, k uct.RKey, t uct.Token) (uint32, uct.Status) {
	if h.resuming {
		return h.Endpoint.Fetch32(op, v, cmp, addr, k, t)
	}
	return 0, ucs.NoResource
}

func (h *stalledEndpoint) Fetch64(op uct.AtomicOp, v, cmp, addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status) {
	if h.resuming {
		return h.Endpoint.Fetch64(op, v, cmp, addr, k, t)
	}
	return 0, ucs.NoResource
}

func (h *stalledEndpoint) Flush(k uct.FlushKind, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.Flush(k, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) Fence() uct.Status {
	if h.resuming {
		return h.Endpoint.Fence()
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) PendingAdd(t uct.Token) uct.Status {
	h.pending = append(h.pending, t)
	return ucs.OK
}

func (h *stalledEndpoint) PendingPurge(f func(uct.Token)) {
	h.Endpoint.PendingPurge(f)
	ts := h.pending
	h.pending, h.numOlder = nil, 0
	for _, t := range ts {
		f(t)
	}
}
