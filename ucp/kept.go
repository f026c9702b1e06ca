package ucp

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// Kept is an active message that outlives its handler, its endpoint and its
// sender. It must be released: by Release, or for a rendezvous by RecvInto or
// Refuse. A copy of a Kept is the same message.
//
// Header, Bytes and Release are good from any goroutine in every thread mode,
// the other methods have the concurrency of the Worker.
type Kept struct {
	r   *kept
	gen uint64
}

// kept is the record behind a Kept. Records are used again and never freed, so a
// look at one that was released is defined.
type kept struct {
	gen  atomic.Uint64 // goes up when the message is released
	next *kept         // of the free list or the mailbox
	w    *Worker

	header, data []byte
	n            int // length of the data
	place        amPlace

	// With placeSender; place.source is nil where nothing will come any more, for
	// the reason lost.
	before, after *kept // in keeper.offers
	lost          error
	status        ucs.Status
}

// keptBlock records are made at once.
const keptBlock = 32

// keeper holds the records of a worker.
type keeper struct {
	w      *Worker
	free   *kept
	live   int   // messages kept
	offers *kept // first of those whose data the sender has

	handles [1]uint64            // for Iface.Release
	mail    atomic.Pointer[kept] // released, to be taken back by the owner
	twice   atomic.Uint64        // releases of what was released
	pressed atomic.Bool          // senders wait for memory to be released
}

// CanKeep reports whether Keep costs no copy.
func (m *AM) CanKeep() bool { return m.place.kind != placeCell }

// Keep makes the message outlive its handler. It never fails: where CanKeep is
// false it copies. What is kept counts against UnexpectedBudget until it is
// released. Only the handler may call it; a second call gives the same.
func (m *AM) Keep() Kept {
	w := m.w
	if !w.am.inside {
		return Kept{}
	}
	if w.am.multi {
		w.t.lock()
		defer w.t.unlock()
	}
	r := m.kept
	if r == nil {
		r = w.am.keep.take()
		r.n, r.place = m.Len, m.place
		w.fillKept(r, m.Header, m.Data)
		if r.place.kind == placeSender {
			w.am.keep.link(r)
		}
		m.kept = r
	}
	return Kept{r, r.gen.Load()}
}

// fillKept gives r the bytes, of its own where they do not stay in place.
func (w *Worker) fillKept(r *kept, header, data []byte) {
	h, n := len(header), len(header)+len(data)
	switch r.place.kind {
	case placeCell, placeSender:
		if r.place.kind == placeCell {
			r.place.kind = placePool
		}
		r.place.chunk = w.hold(n)
		b := w.pool.bytes(r.place.chunk)[:n:n]
		copy(b, header)
		copy(b[h:], data)
		header = b[:h:h]
		if data != nil {
			data = b[h:]
		}
	default:
	}
	r.header, r.data = header, data
}

// rec gives the record where k was not released.
func (k Kept) rec() *kept {
	if k.r == nil || k.r.gen.Load() != k.gen {
		return nil
	}
	return k.r
}

// Header is the message's header; nil after the release.
func (k Kept) Header() []byte {
	if r := k.rec(); r != nil {
		return r.header
	}
	return nil
}

// Bytes is the message's data; nil for a rendezvous and after the release.
func (k Kept) Bytes() []byte {
	if r := k.rec(); r != nil {
		return r.data
	}
	return nil
}

// Len is the length of the message's data in bytes, also of a rendezvous; 0
// after the release.
func (k Kept) Len() int {
	if r := k.rec(); r != nil {
		return r.n
	}
	return 0
}

// Release gives the message back; header and bytes are the worker's from then
// on. The data of a rendezvous is not wanted any more: its sender's request ends
// well. A second release does nothing but is counted.
func (k Kept) Release() {
	r := k.r
	if r == nil {
		return
	}
	if k.claim() {
		r.w.am.keep.post(r)
	}
}
