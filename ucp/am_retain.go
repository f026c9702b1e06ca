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
	r   *retainedMsg
	gen uint64
}

// retainedMsg is the record behind a RetainedAM. Records are reused and never freed, so access
// through a RetainedAM that was released is safe.
type retainedMsg struct {
	gen  atomic.Uint64 // incremented when the message is released
	next *retainedMsg  // in the free list or in mail
	w    *Worker

	header, data []byte
	n            int // length of the data in bytes
	storage      amStorage

	// For storageSender. place.source is nil if the data cannot arrive any more; lost
	// is then the reason.
	prevRndv, nextRndv *retainedMsg // in retainer.rndvs
	err                error
	status             ucs.Status
}

// retainedBlock is the number of records that are allocated at a time.
const retainedBlock = 32

// retainer holds the records of a worker.
type retainer struct {
	w     *Worker
	free  *retainedMsg
	live  int          // number of retained messages
	rndvs *retainedMsg // list of those whose data is at the sender

	handles        [1]uint64                   // argument of Iface.Release
	released       atomic.Pointer[retainedMsg] // released records for the owner to reclaim
	doubleReleases atomic.Uint64               // releases of messages that were released before
	rndvOnly       atomic.Bool                 // senders are under flow control until memory is released
}

// CanRetain reports whether Retain retains the message without a copy.
func (m *AM) CanRetain() bool { return m.storage.kind != storageTransient }

// Retain retains the message after its handler. It never fails: if CanRetain is false, it
// copies. Retained messages count against UnexpectedBudget until they are released.
// Only the handler may call Retain. A second call returns the same RetainedAM.
func (m *AM) Retain() RetainedAM {
	w := m.w
	if !w.am.inHandler {
		return RetainedAM{}
	}
	if w.am.multi {
		w.t.lock()
		defer w.t.unlock()
	}
	r := m.retained
	if r == nil {
		r = w.am.retainer.alloc()
		r.n, r.storage = m.Len, m.storage
		w.fillRetained(r, m.Header, m.Data)
		if r.storage.kind == storageSender {
			w.am.retainer.addRndv(r)
		}
		m.retained = r
	}
	return RetainedAM{r, r.gen.Load()}
}

// fillRetained sets the bytes of r. It copies them if they are valid during the handler
// only.
func (w *Worker) fillRetained(r *retainedMsg, header, data []byte) {
	h, n := len(header), len(header)+len(data)
	switch r.storage.kind {
	case storageTransient, storageSender:
		if r.storage.kind == storageTransient {
			r.storage.kind = storagePool
		}
		r.storage.chunk = w.allocBudgeted(n)
		b := w.pool.bytes(r.storage.chunk)[:n:n]
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
func (k RetainedAM) rec() *retainedMsg {
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
		r.w.am.retainer.queueReleased(r)
	}
}
