package ucp

// post passes r, which was released, to the owner. It wakes a sleeping owner only if
// the transport or a sender waits for the release.
//
// mail is a stack of released records. Any goroutine pushes by CompareAndSwap, which
// pairs with the Swap in collect. The owner takes all records at once; no single record
// is popped, so the reuse of records (ABA) does no harm.
func (a *keeper) post(r *kept) {
	wake := r.place.kind != placePool || a.pressed.Load()
	for {
		first := a.mail.Load()
		r.next = first
		if a.mail.CompareAndSwap(first, r) {
			break
		}
	}
	if wake {
		a.w.Signal()
	}
}

// take returns a record for a message. Only the owner may call it.
func (a *keeper) take() *kept {
	if a.mail.Load() != nil {
		a.collect()
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
func (a *keeper) grow() {
	block := make([]kept, keptBlock)
	for i := range block {
		r := &block[i]
		r.w, r.next = a.w, a.free
		a.free = r
	}
}

// tend reclaims released records, if there are any.
func (a *keeper) tend() {
	if a.mail.Load() != nil || a.twice.Load() != 0 {
		a.collect()
	}
}

// collect reclaims released records. Only the owner may call it.
func (a *keeper) collect() {
	if n := a.twice.Swap(0); n != 0 {
		a.w.count.Add(cntReleasedTwice, n)
	}
	for r := a.mail.Swap(nil); r != nil; {
		next := r.next
		a.giveBack(r)
		r = next
	}
}

// giveBack frees the memory of r and r itself.
func (a *keeper) giveBack(r *kept) {
	switch r.place.kind {
	case placeLent:
		a.handles[0] = r.place.id
		r.place.port.iface.Release(a.handles[:])
	case placeSender:
		if s := r.place.source; s != nil {
			id := r.place.id
			a.unlink(r)
			a.w.unwanted(s, id)
		}
	default:
	}
	chunk := r.place.chunk
	r.header, r.data, r.place, r.n, r.lost = nil, nil, amPlace{}, 0, nil
	a.w.unhold(chunk)
	r.next = a.free
	a.free = r
	a.live--
}
