package ucp

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
		a.w.Signal()
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
			a.w.discardRndv(rx, id)
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
