package rc

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// slotKind is the action on completion of an operation.
type slotKind uint8

const (
	slotPlain slotKind = iota // nothing
	slotToken                 // report the event
	slotBuf                   // free buf, and report the event
	slotFlush                 // count down a flush of several queues
	slotRead                  // an RDMA read: report the event
	slotGet                   // an RDMA read into buf: copy buf to the caller, free it, report the event
	slotFetch                 // an atomic: free buf, report its first word
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
	// listMax is the maximum number of work requests that Progress posts together.
	listMax = 32
	// spareSlots is the number of slots of a queue that are reserved for control messages and
	// zero-byte writes: the switch-over marker, SHUTDOWN, keepalive.
	spareSlots = 4
	// signalEvery bounds the number of operations that one completion covers.
	signalEvery = 32
)

// queue is the send queue of a QP. Operations complete in order: a completion covers all
// operations before it.
type queue struct {
	f          *iface
	qp         verbs.QP
	head, tail uint32 // operations completed and posted, modulo 2^32
	most       uint32 // maximum number in flight; 0: the queue accepts no operation
	mask       uint32
	signals    int    // signaled operations without a completion yet
	unsignaled uint32 // operations since the last signaled one
	reads      uint32 // reads and atomics in flight
	fence      bool   // the next operation waits for the reads
	slots      []slot
	dest       [][]byte // destinations of slotGet; allocated for the first one
	p          *pair
}

// room reports whether one more operation can be posted.
func (q *queue) room() bool { return q.tail-q.head < q.most }

// next returns the work request of the next operation. The caller sets the fields that post
// does not set.
func (q *queue) next() *verbs.SendWR {
	f := q.f
	if f.listed != 0 && (f.listOf != q || f.listed == listMax) {
		f.flushList()
	}
	return &f.list[f.listed]
}

// post posts the work request that next returned. Within Progress it collects work requests for
// flushList.
func (q *queue) post(w *verbs.SendWR, flags verbs.SendFlags) {
	f := q.f
	w.ID = uint64(q.tail)
	q.tail++
	q.unsignaled++
	if q.unsignaled >= signalEvery || !q.room() {
		flags |= verbs.SendSignaled
	}
	if flags&verbs.SendSignaled != 0 {
		q.unsignaled = 0
		q.signals++
		f.signaled++
	}
	if q.fence {
		flags |= verbs.SendFence
		q.fence = false
	}
	w.Flags = flags
	if f.busy != 0 {
		f.listOf = q
		f.listed++
		return
	}
	if n, st := q.qp.PostSend(f.list[:1]); n != 1 {
		q.refused(st)
	}
}

// flushList posts the work requests that Progress has collected.
func (f *iface) flushList() {
	n := f.listed
	if n == 0 {
		return
	}
	f.listed = 0
	if k, st := f.listOf.qp.PostSend(f.list[:n]); k != n {
		f.listOf.refused(st)
	}
}

// refused ends the connection: the device rejected a work request, although there was room.
//
//go:noinline
func (q *queue) refused(st uct.Status) {
	q.f.failLater(q.p.e, failErr("the device refused a work request: "+st.String()))
}

// plain takes the slot of an operation that needs no action when it completes.
func (q *queue) plain() { q.slots[q.tail&q.mask].kind = slotPlain }

// take takes the slot of an operation.
func (q *queue) take(k slotKind, t uct.Token, buf uint32) *slot {
	s := &q.slots[q.tail&q.mask]
	*s = slot{token: t, buf: buf, kind: k}
	if k.reads() {
		q.reads++
	}
	return s
}

// ended completes all operations up to the one with that ID: the last with status st, the
// others with OK.
//
// hot: BenchmarkPutShort.
func (q *queue) ended(id uint32, st uct.Status) {
	for q.head != id+1 {
		s := &q.slots[q.head&q.mask]
		q.head++
		if s.kind != slotPlain {
			with := ucs.OK
			if q.head == id+1 {
				with = st
			}
			q.end(s, with)
		}
	}
}

// end completes an operation according to its slot.
func (q *queue) end(s *slot, st uct.Status) {
	f := q.f
	if s.kind.reads() {
		q.reads--
	}
	ev := uct.Event{Token: s.token, Status: st}
	switch s.kind {
	case slotPlain:
		return
	case slotToken, slotRead:
	case slotGet:
		at := (q.head - 1) & q.mask
		if st == ucs.OK {
			copy(q.dest[at], f.tx.Bytes(s.buf)[:s.n])
		}
		q.dest[at] = nil
		f.tx.Give(s.buf)
	case slotFetch:
		if st == ucs.OK {
			ev.Value = binary.LittleEndian.Uint64(f.tx.Bytes(s.buf))
		}
		f.tx.Give(s.buf)
	case slotFlush:
		ev = f.flushes.ended(s.buf, st)
	case slotBuf:
		f.tx.Give(s.buf)
	}
	if ev.Token != 0 {
		f.tell(ev)
	}
}

// abandon completes all operations in flight with st. The device no longer accesses their
// memory.
func (q *queue) abandon(st uct.Status) {
	for q.head != q.tail {
		s := &q.slots[q.head&q.mask]
		q.head++
		q.end(s, st)
	}
	q.unsignaled = 0
}
