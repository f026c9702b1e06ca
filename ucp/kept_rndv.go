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
		w.am.keep.giveBack(r)
		return RecvRequest{w.t.refuse(opAMRecv, Endpoint{}, ucs.Closed)}
	}
	i := w.slab.take(opAMRecv)
	s := &w.slab.slots[i]
	s.flags, s.tag, s.n = flagKept, 0, uint64(r.n)
	w.slab.bufs[i] = p
	req := RecvRequest{Request{&w.t, w.slab.id(i)}}
	source, id := r.place.source, r.place.id
	switch {
	case r.place.kind != placeSender:
		w.deliver(i, 0, r.data)
		w.slab.bufs[i] = nil
	case source == nil:
		w.keepErr(i, &OpError{Op: opAMRecv.info().name, Err: r.lost})
		w.end(i, r.status)
	default:
		w.am.keep.unlink(r)
		w.askFor(source, i, id, uint64(r.n))
	}
	w.am.keep.giveBack(r)
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
	if s := r.place.source; s != nil && !w.closing {
		text := "no reason given"
		if reason != nil {
			text = reason.Error()
		}
		w.am.keep.unlink(r)
		w.refuse(s, r.place.id, ucs.Rejected, text)
	}
	w.am.keep.giveBack(r)
}

// claim releases the message and reports whether this call did so. The caller then
// frees the record.
func (k RetainedAM) claim() bool {
	if k.r.gen.CompareAndSwap(k.gen, k.gen+1) {
		return true
	}
	k.r.w.am.keep.twice.Add(1)
	k.r.w.Signal() // the owner adds it to the counter
	return false
}

// link adds r to offers. Its sender waits for a reply.
func (a *keeper) link(r *kept) {
	r.place.source.waiting++
	r.before, r.after = nil, a.offers
	if a.offers != nil {
		a.offers.before = r
	}
	a.offers = r
}

// unlink removes r from offers. Its sender needs no reply any more.
func (a *keeper) unlink(r *kept) {
	r.place.source.waiting--
	r.place.source = nil
	if r.before != nil {
		r.before.after = r.after
	} else {
		a.offers = r.after
	}
	if r.after != nil {
		r.after.before = r.before
	}
	r.before, r.after = nil, nil
}

// dropOffer marks the message that s announced as id and canceled. It returns false if
// no such message is retained.
func (a *keeper) dropOffer(s *source, id uint64) bool {
	for r := a.offers; r != nil; r = r.after {
		if r.place.source == s && r.place.id == id {
			a.unlink(r)
			r.lost, r.status = ErrCanceled, ucs.Canceled
			return true
		}
	}
	return false
}

// loseOffers marks the messages of s as failed, because its connection has ended.
func (a *keeper) loseOffers(s *source, reason error) {
	for r := a.offers; r != nil; {
		next := r.after
		if r.place.source == s {
			a.unlink(r)
			r.lost, r.status = reason, ucs.PeerFailed
		}
		r = next
	}
}

// refuseOffers rejects the retained messages and those to be fetched, because the
// worker closes.
func (w *Worker) refuseOffers() {
	for w.am.keep.offers != nil {
		r := w.am.keep.offers
		s, id := r.place.source, r.place.id
		w.am.keep.unlink(r)
		r.lost, r.status = ErrClosed, ucs.Closed
		w.refuse(s, id, ucs.Rejected, "its worker closes")
	}
	for len(w.am.fetch.waiting) > 0 {
		a := w.am.fetch.waiting[0]
		w.dropFetches(a.source, a.id, false)
		w.refuse(a.source, a.id, ucs.Rejected, "its worker closes")
	}
}
