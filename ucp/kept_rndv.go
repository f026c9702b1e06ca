package ucp

import "github.com/goucx/goucx/ucs"

// RecvInto fetches the data into p and releases the message; p is ours until the
// request ends. Longer data is cut: ErrTruncated. The Message has its true
// length and no tag. Where the sender has failed meanwhile the request ends with
// ErrPeerFailed, where it withdrew the message with ErrCanceled. Of a message
// that was kept with its data it is a copy. One that was released before gives a
// request that answers ErrStale.
func (k Kept) RecvInto(p []byte) RecvRequest {
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

// Refuse turns a rendezvous down and releases the message: the sender's request
// ends with ErrRejected, whose text has the first 200 bytes of reason. Any other
// message is only released.
func (k Kept) Refuse(reason error) {
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

// claim releases the message for the caller, who gives it back.
func (k Kept) claim() bool {
	if k.r.gen.CompareAndSwap(k.gen, k.gen+1) {
		return true
	}
	k.r.w.am.keep.twice.Add(1)
	k.r.w.Signal() // the owner counts it
	return false
}

// link notes that the sender waits for what becomes of r.
func (a *keeper) link(r *kept) {
	r.place.source.waiting++
	r.before, r.after = nil, a.offers
	if a.offers != nil {
		a.offers.before = r
	}
	a.offers = r
}

// unlink notes that nobody waits for r any more.
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

// dropOffer notes that s withdrew what it announced under id; false where it is
// not a kept message.
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

// loseOffers notes that s has ended with what it announced.
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

// refuseOffers turns down what is kept and what waits to be fetched: the worker
// closes.
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
