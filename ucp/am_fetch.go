package ucp

import (
	"slices"

	"github.com/goucx/goucx/ucs"
)

// A peer under flow control (budget.go) sends all active messages by rendezvous, also
// those that it would otherwise send eagerly. This is not visible to the handlers: the
// worker fetches the data of such a message first and then runs its handler. Messages
// are fetched in the order of arrival over all senders. At most fetchAtOnce bytes are
// fetched at a time.

// fetchAtOnce is the maximum number of bytes that are fetched at a time. One message
// may exceed it if it is the only one.
const fetchAtOnce = 256 << 10

// maxWhole is the maximum length of a message that is fetched for its handler. It
// bounds the memory that a length announced by a peer can allocate. The sender sends
// longer messages in fragments, also under flow control.
const maxWhole = growLimit

// fetchQueue holds the messages that are fetched for their handlers.
type fetchQueue struct {
	waiting []announcedAM
	running []fetchingAM
	bytes   uint64 // of running
	asking  bool   // fetchNext runs
}

// announcedAM is a message whose data has not been requested.
type announcedAM struct {
	source *source
	head   uint64
	id, n  uint64
	header chunk
}

// fetchingAM is a message whose data has been requested. slot is a receive without a
// user request.
type fetchingAM struct {
	slot   uint32
	source *source
	head   uint64
	chunk  chunk // header and data
	n      uint64
}

// fetchWhole queues a message of s to be fetched and then handled.
func (w *Worker) fetchWhole(s *source, head, id, n uint64, header []byte) {
	a := announcedAM{source: s, head: head, id: id, n: n}
	if len(header) > 0 {
		a.header = w.hold(len(header))
		copy(w.pool.bytes(a.header), header)
	}
	s.waiting++
	w.am.fetch.waiting = append(w.am.fetch.waiting, a)
	w.fetchNext()
}

// fetchNext requests queued messages up to the bound.
func (w *Worker) fetchNext() {
	q := &w.am.fetch
	if q.asking {
		return // an empty message completed inside the loop
	}
	q.asking = true
	for len(q.waiting) > 0 && (len(q.running) == 0 || q.bytes+q.waiting[0].n <= fetchAtOnce) {
		a := q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
		a.source.waiting--
		h := uint64(wordHeader(a.head))
		f := fetchingAM{source: a.source, head: a.head, n: a.n, chunk: w.hold(int(a.n + h))}
		b := w.pool.bytes(f.chunk)[: h+a.n : h+a.n]
		if h > 0 {
			copy(b, w.pool.bytes(a.header)[:h])
			w.unhold(a.header)
		}
		f.slot = w.slab.take(opAMFetch)
		r := &w.slab.slots[f.slot]
		r.tag, r.flags = 0, flagReported
		w.slab.bufs[f.slot] = b[h:]
		q.running = append(q.running, f)
		q.bytes += a.n
		w.askFor(a.source, f.slot, a.id, a.n)
	}
	q.asking = false
}

// fetchEnded runs the handler of the message whose fetch in slot i completed with st,
// and releases the slot.
func (w *Worker) fetchEnded(i uint32, st ucs.Status) {
	q := &w.am.fetch
	k := slices.IndexFunc(q.running, func(f fetchingAM) bool { return f.slot == i })
	f := q.running[k]
	q.running = slices.Delete(q.running, k, k+1)
	q.bytes -= f.n
	w.slab.bufs[i] = nil
	w.slab.release(i)
	kept := false
	if st == ucs.OK {
		n := int(f.n) + wordHeader(f.head)
		kept = w.dispatch(f.source, f.head, w.pool.bytes(f.chunk)[:n:n], amPlace{kind: placePool, chunk: f.chunk})
	}
	if !kept {
		w.unhold(f.chunk)
	}
	if st != ucs.Closed {
		w.fetchNext()
	}
}

// dropFetches removes the message that s announced as id, if its data has not been
// requested. With every it removes all such messages of s. It reports whether it
// removed any.
func (w *Worker) dropFetches(s *source, id uint64, every bool) bool {
	q := &w.am.fetch
	n := len(q.waiting)
	q.waiting = slices.DeleteFunc(q.waiting, func(a announcedAM) bool {
		if a.source != s || !every && a.id != id {
			return false
		}
		s.waiting--
		w.unhold(a.header)
		return true
	})
	return len(q.waiting) < n
}
