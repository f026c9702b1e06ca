package rc

import (
	"encoding/binary"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// slotKind is the action on completion of an operation.
type slotKind uint8

const (
	slotPlain   slotKind = iota // nothing
	slotToken                   // report the event
	slotControl                 // a control message or a zero-byte write, no operation of the caller: report the event
	slotBuf                     // free buf, and report the event
	slotFlush                   // count down a flush of several queues
	slotRead                    // an RDMA read: report the event
	slotGet                     // an RDMA read into buf: copy buf to the caller, free it, report the event
	slotFetch                   // an atomic: free buf, report its first word
)

// reads reports whether the operation is an RDMA read or an atomic. A fence waits for these
// only.
func (k slotKind) reads() bool { return k >= slotRead }

// slot is an operation in flight.
type slot struct {
	token uct.Token
	buf   uint32 // of iface.tx
	n     uint32 // length of slotGet in bytes
	kind  slotKind
}

const (
	// postListMax is the maximum number of work requests that Progress posts together.
	postListMax = 32
	// reservedSlots is the number of slots of a queue that are reserved for control messages and
	// zero-byte writes: the switch-over marker, SHUTDOWN, keepalive.
	reservedSlots = 4
	// signalEvery bounds the number of operations that one completion covers.
	signalEvery = 32
)

// sendQueue is the send queue of a QP. Operations complete in order: a completion covers all
// operations before it.
type sendQueue struct {
	f           *iface
	qp          verbs.QP
	head, tail  uint32 // operations completed and posted, modulo 2^32
	maxInFlight uint32 // maximum number in flight; 0: the queue accepts no operation
	mask        uint32
	signaled    int    // signaled operations without a completion yet
	unsignaled  uint32 // operations since the last signaled one
	reads       uint32 // reads and atomics in flight
	fence       bool   // the next operation waits for the reads
	slots       []slot
	dest        [][]byte // destinations of slotGet; allocated for the first one
	p           *connQP
}

// room reports whether one more operation can be posted.
func (q *sendQueue) room() bool { return q.tail-q.head < q.maxInFlight }

// nextWR returns the work request of the next operation. The caller sets the fields that post
// does not set.
func (q *sendQueue) nextWR() *verbs.SendWR {
	f := q.f
	if f.postListLen != 0 && (f.postListQueue != q || f.postListLen == postListMax) {
		f.flushPostList()
	}
	return &f.postList[f.postListLen]
}

// post posts the work request that nextWR returned. Within Progress it collects work requests for
// flushPostList.
func (q *sendQueue) post(w *verbs.SendWR, flags verbs.SendFlags) {
	f := q.f
	w.ID = uint64(q.tail)
	q.tail++
	q.unsignaled++
	if q.unsignaled >= signalEvery || !q.room() {
		flags |= verbs.SendSignaled
	}
	if flags&verbs.SendSignaled != 0 {
		q.unsignaled = 0
		q.signaled++
		f.signaled++
	}
	if q.fence {
		flags |= verbs.SendFence
		q.fence = false
	}
	w.Flags = flags
	if f.ProgressDepth != 0 {
		f.postListQueue = q
		f.postListLen++
		return
	}
	if n, st := q.qp.PostSend(f.postList[:1]); n != 1 {
		q.postFailed(st)
	}
}

// flushPostList posts the work requests that Progress has collected.
func (f *iface) flushPostList() {
	n := f.postListLen
	if n == 0 {
		return
	}
	f.postListLen = 0
	if k, st := f.postListQueue.qp.PostSend(f.postList[:n]); k != n {
		f.postListQueue.postFailed(st)
	}
}

// postFailed ends the connection: the device rejected a work request, although there was room.
//
//go:noinline
func (q *sendQueue) postFailed(st uct.Status) {
	q.f.FailLater(q.p.e, conn.PeerFailed("the device refused a work request: "+st.String()))
}

// takePlainSlot takes the slot of an operation that needs no action when it completes.
func (q *sendQueue) takePlainSlot() { q.slots[q.tail&q.mask].kind = slotPlain }

// takeSlot takes the slot of an operation.
func (q *sendQueue) takeSlot(k slotKind, t uct.Token, buf uint32) *slot {
	s := &q.slots[q.tail&q.mask]
	*s = slot{token: t, buf: buf, kind: k}
	if k.reads() {
		q.reads++
	}
	return s
}

// completeTo completes all operations up to the one with that ID: the last with status st, the
// others with OK.
//
//hot:bench BenchmarkPutShort
func (q *sendQueue) completeTo(id uint32, st uct.Status) {
	for q.head != id+1 {
		s := &q.slots[q.head&q.mask]
		q.head++
		if s.kind != slotPlain {
			opStatus := ucs.OK
			if q.head == id+1 {
				opStatus = st
			}
			q.complete(s, opStatus)
		}
	}
}

// complete completes an operation according to its slot.
func (q *sendQueue) complete(s *slot, st uct.Status) {
	f := q.f
	if s.kind.reads() {
		q.reads--
	}
	ev := uct.Event{Token: s.token, Status: st}
	switch s.kind {
	case slotPlain:
		return
	case slotToken, slotControl, slotRead:
	case slotGet:
		at := (q.head - 1) & q.mask
		if st == ucs.OK {
			copy(q.dest[at], f.tx.Bytes(s.buf)[:s.n])
		}
		q.dest[at] = nil
		f.tx.Put(s.buf)
	case slotFetch:
		if st == ucs.OK {
			ev.Value = binary.LittleEndian.Uint64(f.tx.Bytes(s.buf))
		}
		f.tx.Put(s.buf)
	case slotFlush:
		ev = f.flushes.countDown(s.buf, st)
	case slotBuf:
		f.tx.Put(s.buf)
	}
	if ev.Token != 0 {
		f.queueEvent(ev)
	}
}
