package ucp

// post hands r, which was released, to the owner. A sleeping owner is woken only
// where somebody waits for it.
func (a *keeper) post(r *kept) {
	for {
		first := a.mail.Load()
		r.next = first
		if a.mail.CompareAndSwap(first, r) {
			break
		}
	}
}

// take gives a record for a message; the caller is the owner.
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

// collect takes back what was released; the caller is the owner.
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

// giveBack returns the memory of r, and r itself.
func (a *keeper) giveBack(r *kept) {
	switch r.place.kind {
	case placeLent:
		r.place.port.iface.Release([]uint64{r.place.lent})
	case placeChunk:
		a.w.pool.put(r.place.chunk)
	default:
	}
	r.header, r.data, r.place, r.n = nil, nil, amPlace{}, 0
	r.next = a.free
	a.free = r
	a.live--
}
