package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucp/internal/pool"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// control is a message of the protocol itself, without data of the program. Its payload is
// the first n ≤ 16 bytes of a and b, little-endian, or text.
type control struct {
	id   uct.AMID
	hdr  uint64
	n    int
	a, b uint64
	text []byte
	mem  pool.Chunk // pool memory that holds text; only with queueControl
}

// controlOp is the slot of a control message that waits, in lane.pendingControl.
type controlOp struct {
	request.Header
	id           uint32 // uct.AMID
	_            uint32
	hdr, a, b, n uint64
}

// reply sends m to the worker that sends on s. It may be called from anywhere, also from
// callbacks of the transport. It returns false if the sender of rx is unknown or not
// reachable. The sender's connection then fails, so that it does not wait for the reply.
//
//hot:bench BenchmarkTagSync
func (rx *rxConn) reply(m control) bool {
	w := rx.w
	lane := rx.replyLane
	if lane == 0 {
		if lane = rx.openReplyLane(); lane == 0 {
			return rx.disconnectUnreplied(m.id)
		}
	}
	if !w.control(lane, m) {
		if lane = rx.reconnectReplyLane(); lane == 0 {
			return rx.disconnectUnreplied(m.id)
		}
		w.control(lane, m)
	}
	rx.replySent = rx.replySent || m.id != wire.FlowControl // the peer does not wait for wire.FlowControl
	return true
}

// disconnectUnreplied closes the connection of a sender that waits for a reply which cannot be sent.
//
//go:noinline
func (rx *rxConn) disconnectUnreplied(id uct.AMID) bool {
	if id != wire.FlowControl {
		rx.iface.iface.Disconnect(rx.id)
	}
	return false
}

// control sends m on a lane. If it gets NoResource it waits in lane.pendingControl, which is
// sent before everything else that waits on the lane. This is safe, because the peer
// needs control messages to make progress, and they have no order with other messages.
// control returns false if the lane's connection has failed, whether the transport has
// reported that or not.
func (w *thread) control(lane uint32, m control) bool {
	l := &w.lanes[lane]
	if l.state == laneFailed {
		return false
	}
	if l.pendingControl.Head == 0 {
		if st := l.sendControl(m); st != ucs.NoResource {
			return st == ucs.OK
		}
	}
	if len(m.text) > 0 { // the caller owns text
		m.mem = w.pool.Get(len(m.text))
		m.text = append(w.pool.Bytes(m.mem)[:0], m.text...)
	}
	w.queueControl(lane, m)
	return true
}

// queueControl queues m until the transport has resources.
func (w *thread) queueControl(lane uint32, m control) {
	l := &w.lanes[lane]
	i := w.slab.Alloc(request.Control)
	s := request.As[controlOp](&w.slab.Slots[i])
	s.Lane, s.id, s.Flags = lane, uint32(m.id), request.FlagReported
	s.hdr, s.a, s.b, s.n = m.hdr, m.a, m.b, uint64(m.n)
	w.slab.Bufs[i] = m.text
	if m.mem != 0 {
		s.Flags |= request.FlagExtra
		w.slab.copies[i] = m.mem
	}
	w.slab.Push(&l.pendingControl, i)
	if st := w.try(i); st != ucs.InProgress {
		w.end(i, st)
	}
}

// sendControl sends m, or returns NoResource.
func (l *lane) sendControl(m control) ucs.Status {
	n := max(m.n, min(len(m.text), l.maxBcopy)) // a reason may be truncated
	ep := l.transport()
	if n == 0 {
		return ep.AMShort(m.id, m.hdr, nil)
	}
	b, st := ep.ReserveAM(m.id, m.hdr, n)
	if st != ucs.OK {
		return st
	}
	if m.n > 0 {
		var p [16]byte
		binary.LittleEndian.PutUint64(p[:], m.a)
		binary.LittleEndian.PutUint64(p[8:], m.b)
		copy(b, p[:m.n])
	} else {
		copy(b, m.text)
	}
	ep.CommitAM(n)
	return ucs.OK
}

var controlOperation = operation{
	progress: (*thread).resumeControl,
	complete: func(w *thread, i uint32, _ ucs.Status) bool {
		w.slab.Unlink(&w.lanes[w.slab.Slots[i].Lane].pendingControl, i)
		return false
	},
}

func (w *thread) resumeControl(i uint32) ucs.Status {
	s := request.As[controlOp](&w.slab.Slots[i])
	l := &w.lanes[s.Lane]
	if l.state == laneFailed {
		return l.status()
	}
	return l.sendControl(control{
		id: uct.AMID(s.id), hdr: s.hdr, n: int(s.n), a: s.a, b: s.b, text: w.slab.Bufs[i],
	})
}

// sendPendingControl sends the control messages that wait on a lane. It returns false if one
// of them gets NoResource again. Their tokens stay in the transport's pending queue,
// which skips them.
//
//go:noinline
func (w *thread) sendPendingControl(lane uint32) bool {
	for {
		i := w.lanes[lane].pendingControl.Head
		if i == 0 {
			return true
		}
		st := w.resumeControl(i)
		if st == ucs.NoResource {
			return false
		}
		w.end(i, st)
	}
}
