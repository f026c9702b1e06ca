package ucp

import "github.com/goucx/goucx/ucs"

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
	w.t.lock()
	defer w.t.unlock()
	if !k.claim() {
		return RecvRequest{}
	}
	if w.closing {
		w.am.retainer.recycle(r)
		return RecvRequest{w.t.refuse(opAMRecv, Endpoint{}, ucs.Closed)}
	}
	i := w.slab.alloc(opAMRecv)
	s := &w.slab.slots[i]
	s.flags, s.tag, s.length = flagHasResult, 0, uint64(r.n)
	w.slab.bufs[i] = p
	req := RecvRequest{Request{&w.t, w.slab.id(i)}}
	source, id := r.storage.rx, r.storage.id
	switch {
	case r.storage.kind != storageSender:
		w.deliver(i, 0, r.data)
		w.slab.bufs[i] = nil
	case source == nil:
		w.saveErr(i, &OpError{Op: opAMRecv.info().name, Err: r.err})
		w.end(i, r.status)
	default:
		w.am.retainer.removeRndv(r)
		w.requestData(source, i, id, uint64(r.n))
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
	w.t.lock()
	defer w.t.unlock()
	if !k.claim() {
		return
	}
	if rx := r.storage.rx; rx != nil && !w.closing {
		text := "no reason given"
		if reason != nil {
			text = reason.Error()
		}
		w.am.retainer.removeRndv(r)
		w.reject(rx, r.storage.id, ucs.Rejected, text)
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
	k.r.w.Signal() // the owner adds it to the counter
	return false
}

// addRndv adds r to offers. Its sender waits for a reply.
func (a *retainer) addRndv(r *retainedMsg) {
	r.storage.rx.pendingReplies++
	r.prevRndv, r.nextRndv = nil, a.rndvs
	if a.rndvs != nil {
		a.rndvs.prevRndv = r
	}
	a.rndvs = r
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

// cancelRndv marks the message that s announced as id and canceled. It returns false if
// no such message is retained.
func (a *retainer) cancelRndv(rx *rxConn, id uint64) bool {
	for r := a.rndvs; r != nil; r = r.nextRndv {
		if r.storage.rx == rx && r.storage.id == id {
			a.removeRndv(r)
			r.err, r.status = ErrCanceled, ucs.Canceled
			return true
		}
	}
	return false
}

// failRndvs marks the messages of s as failed, because its connection has ended.
func (a *retainer) failRndvs(rx *rxConn, reason error) {
	for r := a.rndvs; r != nil; {
		next := r.nextRndv
		if r.storage.rx == rx {
			a.removeRndv(r)
			r.err, r.status = reason, ucs.PeerFailed
		}
		r = next
	}
}

// rejectRndvs rejects the retained messages and those to be fetched, because the
// worker closes.
func (w *Worker) rejectRndvs() {
	for w.am.retainer.rndvs != nil {
		r := w.am.retainer.rndvs
		rx, id := r.storage.rx, r.storage.id
		w.am.retainer.removeRndv(r)
		r.err, r.status = ErrClosed, ucs.Closed
		w.reject(rx, id, ucs.Rejected, "its worker closes")
	}
	for len(w.am.prefetch.queued) > 0 {
		a := w.am.prefetch.queued[0]
		w.dropPrefetches(a.rx, a.id, false)
		w.reject(a.rx, a.id, ucs.Rejected, "its worker closes")
	}
}
