package ucp

import (
	"slices"

	"github.com/goucx/goucx/ucs"
)

// A sender who was told to announce everything does so with active messages
// too, and their handlers are not to notice: what was announced for that reason
// alone is fetched first and handled when it is there. That happens in the order
// of arrival and for a bounded number of bytes at a time, whoever sends.

// fetchAtOnce is how many bytes are asked for at a time, beside one message that
// may be longer.
const fetchAtOnce = 256 << 10

// maxWhole is the longest message that is fetched for its handler: a peer's word
// for a length takes no more memory than that. Longer ones that are to be sent
// along go in fragments, whatever the budget says.
const maxWhole = growLimit

// fetchQueue is what is to be fetched for handlers.
type fetchQueue struct {
	waiting []announcedAM
	running []fetchingAM
	bytes   uint64 // asked for
	asking  bool   // fetchNext runs
}

// announcedAM is a message that nobody asked for yet.
type announcedAM struct {
	source *source
	head   uint64
	id, n  uint64
	header chunk
}

// fetchingAM is a message whose data was asked for: a receive without a user.
type fetchingAM struct {
	slot   uint32
	source *source
	head   uint64
	chunk  chunk // header, then data
	n      uint64
}

// fetchWhole has a message fetched and then handled.
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

// fetchNext asks for what waits, as far as the bound allows.
func (w *Worker) fetchNext() {
	q := &w.am.fetch
	if q.asking {
		return // an empty message was handled at once
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

// fetchEnded hands the message whose fetch in slot i ended to its handler. The
// slot is released.
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

// dropFetches forgets what s announced under id and was not asked for; all of s
// with every. It reports whether there was something.
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
