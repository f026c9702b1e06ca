package ucp

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucp/internal/request"
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
	w    *thread

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
	w     *thread
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
		w.lock()
		defer w.unlock()
	}
	r := m.retained
	if r == nil {
		r = w.am.retainer.alloc()
		r.n, r.storage = m.Len, m.storage
		r.header, r.data = m.Header, m.Data
		if k := r.storage.kind; k == storageTransient || k == storageSender { // the bytes are valid during the handler only
			h, n := len(m.Header), len(m.Header)+len(m.Data)
			r.storage.chunk = w.allocBudgeted(n)
			b := w.pool.Bytes(r.storage.chunk)[:n:n]
			copy(b, m.Header)
			copy(b[h:], m.Data)
			r.header = b[:h:h]
			if m.Data != nil {
				r.data = b[h:]
			}
		}
		switch r.storage.kind {
		case storageTransient:
			r.storage.kind = storagePool
		case storageSender: // it waits for a reply
			r.storage.rx.pendingReplies++
			r.prevRndv, r.nextRndv = nil, w.am.retainer.rndvs
			if r.nextRndv != nil {
				r.nextRndv.prevRndv = r
			}
			w.am.retainer.rndvs = r
		default:
		}
		m.retained = r
	}
	return RetainedAM{r, r.gen.Load()}
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

// RecvInto fetches the data into p and releases the message. The library owns p until
// the request completes. Data longer than p is truncated: ErrTruncated. The Message has
// the full length and no tag. If the sender has failed, the request completes with
// ErrPeerFailed; if it has canceled the message, with ErrCanceled. If the message was
// retained with its data, RecvInto copies it. If it was released before, the request
// returns ErrStale.
func (k RetainedAM) RecvInto(p []byte) RecvRequest {
	r := k.r
	if r == nil {
		return RecvRequest{}
	}
	w := r.w
	w.lock()
	defer w.unlock()
	if !k.claim() {
		return RecvRequest{}
	}
	if w.life.closing() {
		w.am.retainer.recycle(r)
		return RecvRequest{w.refuse(request.AMRecv, Endpoint{}, ucs.Closed)}
	}
	i := w.slab.Alloc(request.AMRecv)
	s := request.As[recvOp](&w.slab.Slots[i])
	s.Flags, s.tag, s.length = request.FlagHasResult, 0, uint64(r.n)
	w.slab.Bufs[i] = p
	req := RecvRequest{Request{w, w.slab.ID(i)}}
	source, id := r.storage.rx, r.storage.id
	switch {
	case r.storage.kind != storageSender:
		w.deliver(i, 0, r.data)
		w.slab.Bufs[i] = nil
	case source == nil:
		w.slab.saveErr(i, &OpError{Op: request.AMRecv.String(), Err: r.err})
		w.end(i, r.status)
	default:
		w.am.retainer.removeRndv(r)
		source.requestData(i, id, uint64(r.n))
	}
	w.am.retainer.recycle(r)
	return req
}

// Refuse rejects a rendezvous and releases the message. The sender's request completes
// with ErrRejected, whose text has the first 200 bytes of reason. Any other message is
// only released.
func (k RetainedAM) Refuse(reason error) {
	r := k.r
	if r == nil {
		return
	}
	w := r.w
	w.lock()
	defer w.unlock()
	if !k.claim() {
		return
	}
	if rx := r.storage.rx; rx != nil && !w.life.closing() {
		text := "no reason given"
		if reason != nil {
			text = reason.Error()
		}
		w.am.retainer.removeRndv(r)
		rx.reject(r.storage.id, ucs.Rejected, text)
	}
	w.am.retainer.recycle(r)
}

// claim releases the message and reports whether this call did so. The caller then
// frees the record.
func (k RetainedAM) claim() bool {
	if k.r.gen.CompareAndSwap(k.gen, k.gen+1) {
		return true
	}
	k.r.w.am.retainer.doubleReleases.Add(1)
	k.r.w.polling.signal() // the owner adds it to the counter
	return false
}

// removeRndv removes r from offers. Its sender needs no reply any more.
func (a *retainer) removeRndv(r *retainedMsg) {
	r.storage.rx.pendingReplies--
	r.storage.rx = nil
	if r.prevRndv != nil {
		r.prevRndv.nextRndv = r.nextRndv
	} else {
		a.rndvs = r.nextRndv
	}
	if r.nextRndv != nil {
		r.nextRndv.prevRndv = r.prevRndv
	}
	r.prevRndv, r.nextRndv = nil, nil
}

// endRndvs marks the message that the peer announced as id, or all of its messages, as not coming
// any more. It reports whether there is one.
func (a *retainer) endRndvs(rx *rxConn, id uint64, all bool, err error, st ucs.Status) (found bool) {
	for r := a.rndvs; r != nil; {
		next := r.nextRndv
		if r.storage.rx == rx && (all || r.storage.id == id) {
			a.removeRndv(r)
			r.err, r.status = err, st
			found = true
		}
		r = next
	}
	return found
}

// queueReleased passes r, which was released, to the owner. It wakes a sleeping owner only if
// the transport or a sender waits for the release.
//
// mail is a stack of released records. Any goroutine pushes by CompareAndSwap, which
// pairs with the Swap in collect. The owner takes all records at once; no single record
// is popped, so the reuse of records (ABA) does no harm.
func (a *retainer) queueReleased(r *retainedMsg) {
	wake := r.storage.kind != storagePool || a.rndvOnly.Load()
	for {
		first := a.released.Load()
		r.next = first
		if a.released.CompareAndSwap(first, r) {
			break
		}
	}
	if wake {
		a.w.polling.signal()
	}
}

// alloc returns a record for a message. Only the owner may call it.
func (a *retainer) alloc() *retainedMsg {
	if a.released.Load() != nil {
		a.reclaim()
	}
	if a.free == nil {
		a.grow()
	}
	r := a.free
	a.free = r.next
	r.next = nil
	a.live++
	return r
}

//go:noinline
func (a *retainer) grow() {
	block := make([]retainedMsg, retainedBlock)
	for i := range block {
		r := &block[i]
		r.w, r.next = a.w, a.free
		a.free = r
	}
}

// service reclaims released records, if there are any.
func (a *retainer) service() {
	if a.released.Load() != nil || a.doubleReleases.Load() != 0 {
		a.reclaim()
	}
}

// reclaim reclaims released records. Only the owner may call it.
func (a *retainer) reclaim() {
	if n := a.doubleReleases.Swap(0); n != 0 {
		a.w.count.Add(cntDoubleRelease, n)
	}
	for r := a.released.Swap(nil); r != nil; {
		next := r.next
		a.recycle(r)
		r = next
	}
}

// recycle frees the memory of r and r itself.
func (a *retainer) recycle(r *retainedMsg) {
	switch r.storage.kind {
	case storageRetainable:
		a.handles[0] = r.storage.id
		r.storage.iface.iface.Release(a.handles[:])
	case storageSender:
		if rx := r.storage.rx; rx != nil {
			id := r.storage.id
			a.removeRndv(r)
			rx.discardRndv(id)
		}
	default:
	}
	chunk := r.storage.chunk
	r.header, r.data, r.storage, r.n, r.err = nil, nil, amStorage{}, 0, nil
	a.w.freeBudgeted(chunk)
	r.next = a.free
	a.free = r
	a.live--
}
