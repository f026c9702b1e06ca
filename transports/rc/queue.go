package rc

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// slotKind says what is to be done when an operation ends.
type slotKind uint8

const (
	slotPlain slotKind = iota // nothing
	slotToken                 // tell
	slotBuf                   // give the buffer back, and tell
	slotFlush                 // count down a flush of several queues
	slotRead                  // an RDMA read: report it
	slotGet                   // an RDMA read into buf: copy buf to the caller, free it, report it
	slotFetch                 // an atomic: free buf, report its first word
)

// reads reports whether the operation is an RDMA read or an atomic. A fence waits for
// these alone.
func (k slotKind) reads() bool { return k >= slotRead }

// slot is an operation under way.
type slot struct {
	token uct.Token
	buf   uint32 // of iface.tx
	n     uint32 // bytes of slotGet
	kind  slotKind
}

const (
	// listMax is the most work requests that one Progress posts together.
	listMax = 32
	// spareSlots of a queue are kept for what the two ends have to tell each other:
	// the marker, the hang-up, and whether the peer lives.
	spareSlots = 4
	// signalEvery is how many operations end by one completion at most.
	signalEvery = 32
)

// queue is the sending side of a queue pair. Operations end in order; those
// before a completion have ended with it.
type queue struct {
	f          *iface
	qp         verbs.QP
	head, tail uint32 // operations ended and posted, modulo 2^32
	most       uint32 // how many may be under way; 0: it takes none
	mask       uint32
	signals    int    // completions that were asked for and have not come
	unsignaled uint32 // since the last that asks for a completion
	reads      uint32 // reads and atomics under way
	fence      bool   // the next waits for the reads
	slots      []slot
	dest       [][]byte // of slotGet; made when there is the first
	p          *pair
}

// room reports whether one more operation may be posted.
func (q *queue) room() bool { return q.tail-q.head < q.most }

// next is the work request of the next operation. What of it post does not set is
// the caller's to set.
func (q *queue) next() *verbs.SendWR {
	f := q.f
	if f.listed != 0 && (f.listOf != q || f.listed == listMax) {
		f.flushList()
	}
	return &f.list[f.listed]
}

// post posts what next gave. Within Progress it goes with what follows.
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

// flushList posts what Progress has collected.
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

// refused deals with what the device did not take, though there was room for it:
// it ends with the connection.
//
//go:noinline
func (q *queue) refused(st uct.Status) {
	q.f.failLater(q.p.e, failErr("the device refused a work request: "+st.String()))
}

// plain takes the slot of an operation that needs nothing at its end.
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

// ended ends all operations up to the one with that ID, with status st for the
// last and OK for the others.
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

// end does what the slot says.
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

// abandon ends all that is under way with st; nothing of the device touches its
// memory any more.
func (q *queue) abandon(st uct.Status) {
	for q.head != q.tail {
		s := &q.slots[q.head&q.mask]
		q.head++
		q.end(s, st)
	}
	q.unsignaled = 0
}
