package ucp

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// RetainedAM is an active message that outlives its handler, its endpoint and the connection
// to its sender. The program must release it: by Release, or for a rendezvous by
// RecvInto or Refuse. A copy of a RetainedAM refers to the same message.
//
// Any goroutine may call Header, Bytes and Release in every thread mode. The other
// methods have the concurrency of the Worker.
type RetainedAM struct {
	r   *kept
	gen uint64
}

// kept is the record behind a RetainedAM. Records are reused and never freed, so access
// through a RetainedAM that was released is safe.
type kept struct {
	gen  atomic.Uint64 // incremented when the message is released
	next *kept         // in the free list or in mail
	w    *Worker

	header, data []byte
	n            int // length of the data in bytes
	place        amPlace

	// For placeSender. place.source is nil if the data cannot arrive any more; lost
	// is then the reason.
	before, after *kept // in keeper.offers
	lost          error
	status        ucs.Status
}

// keptBlock is the number of records that are allocated at a time.
const keptBlock = 32

// keeper holds the records of a worker.
type keeper struct {
	w      *Worker
	free   *kept
	live   int   // number of retained messages
	offers *kept // list of those whose data is at the sender

	handles [1]uint64            // argument of Iface.Release
	mail    atomic.Pointer[kept] // released records for the owner to reclaim
	twice   atomic.Uint64        // releases of messages that were released before
	pressed atomic.Bool          // senders are under flow control until memory is released
}

// CanRetain reports whether Retain retains the message without a copy.
func (m *AM) CanRetain() bool { return m.place.kind != placeCell }

// Retain retains the message after its handler. It never fails: if CanRetain is false, it
// copies. Retained messages count against UnexpectedBudget until they are released.
// Only the handler may call Retain. A second call returns the same RetainedAM.
func (m *AM) Retain() RetainedAM {
	w := m.w
	if !w.am.inside {
		return RetainedAM{}
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
	return RetainedAM{r, r.gen.Load()}
}

// fillKept sets the bytes of r. It copies them if they are valid during the handler
// only.
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

// rec returns the record, nil if k was released.
func (k RetainedAM) rec() *kept {
	if k.r == nil || k.r.gen.Load() != k.gen {
		return nil
	}
	return k.r
}

// Header returns the message's header; nil after the release.
func (k RetainedAM) Header() []byte {
	if r := k.rec(); r != nil {
		return r.header
	}
	return nil
}

// Bytes returns the message's data; nil for a rendezvous and after the release.
func (k RetainedAM) Bytes() []byte {
	if r := k.rec(); r != nil {
		return r.data
	}
	return nil
}

// Len returns the length of the message's data in bytes, also of a rendezvous; 0 after
// the release.
func (k RetainedAM) Len() int {
	if r := k.rec(); r != nil {
		return r.n
	}
	return 0
}

// Release releases the message. The library owns its header and data from then on. The
// data of a rendezvous is discarded, and the sender's request completes without an
// error. A repeated release has no effect but is counted.
func (k RetainedAM) Release() {
	r := k.r
	if r == nil {
		return
	}
	if k.claim() {
		r.w.am.keep.post(r)
	}
}
