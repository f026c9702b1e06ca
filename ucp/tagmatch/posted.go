package tagmatch

// Posted holds receives in the order of posting. The zero Posted is empty and ready to
// use.
type Posted struct {
	// A receive that is the only one is stored here, not in the index. A program
	// that waits for one message at a time needs no more.
	only      uint32 // 0: all receives are in the index
	tag, mask uint64 // of only

	idx     index
	n       int  // in the index
	wild    list // receives with a wildcard mask
	seq     uint64
	numWild int // in wild
}

// Len returns the number of receives.
func (p *Posted) Len() int {
	if p.only != 0 {
		return 1
	}
	return p.n
}

// Pattern returns the tag and the mask of receive id.
func (p *Posted) Pattern(id uint32) (tag, mask uint64) {
	if id == p.only {
		return p.tag, p.mask
	}
	e := &p.idx.nodes[id]
	return e.tag, e.mask
}

// AddOnly is Add if p is empty. Otherwise it returns false and changes nothing.
func (p *Posted) AddOnly(id uint32, tag, mask uint64) bool {
	if p.n != 0 || p.only != 0 {
		return false
	}
	p.only, p.tag, p.mask = id, tag, mask
	return true
}

// Add adds receive id, which is not 0 and not in p. It accepts messages whose tag
// equals tag in the bits of mask. Numbers should be small: memory is allocated up to
// the largest.
//
//hot:bench BenchmarkExpected
func (p *Posted) Add(id uint32, tag, mask uint64) {
	if !p.AddOnly(id, tag, mask) {
		p.addMore(id, tag, mask)
	}
}

// addMore adds a receive that is not the only one.
//
//go:noinline
func (p *Posted) addMore(id uint32, tag, mask uint64) {
	if p.only != 0 {
		p.insert(p.only, p.tag, p.mask)
		p.only = 0
	}
	p.insert(id, tag, mask)
}

// insert adds a receive to the index.
func (p *Posted) insert(id uint32, tag, mask uint64) {
	if int(id) >= len(p.idx.nodes) {
		p.idx.grow(id)
	}
	x := &p.idx
	e := &x.nodes[id]
	p.seq++
	p.n++
	e.tag, e.mask, e.seq = tag, mask, p.seq
	if mask != ^uint64(0) {
		p.addWild(id)
		return
	}
	// As index.push, with one call less.
	q := &x.table[x.bucket(tag)]
	if q.tail == 0 || q.tag != tag {
		q = x.queueOf(tag)
	}
	e.next = 0
	if q.head == 0 {
		q.head = id
	} else {
		x.nodes[q.tail].next = id
		e.prev = q.tail
	}
	q.tail = id
}

//go:noinline
func (p *Posted) addWild(id uint32) {
	p.wild.push(p.idx.nodes, id)
	p.numWild++
}

// FindOnly returns the only receive if it accepts a message with this tag. It returns 0 if it does
// not, or if there are several. Match then returns the receive.
func (p *Posted) FindOnly(tag uint64) uint32 {
	if (p.tag^tag)&p.mask != 0 {
		return 0
	}
	return p.only
}

// RemoveOnly removes the receive that FindOnly returned.
func (p *Posted) RemoveOnly() { p.only = 0 }

// Match removes and returns the oldest receive that accepts a message with this tag, 0
// if there is none.
//
//hot:bench BenchmarkExpected
//go:noinline
func (p *Posted) Match(tag uint64) uint32 {
	if i := p.FindOnly(tag); i != 0 {
		p.only = 0
		return i
	}
	if p.only != 0 || p.n == 0 {
		return 0
	}
	x := &p.idx
	q := &x.table[x.bucket(tag)]
	i := q.head
	if i == 0 || q.tag != tag || p.numWild != 0 {
		return p.matchSlow(tag)
	}
	n := &x.nodes[i]
	n.seq = 0
	q.head = n.next
	p.n--
	return i
}

//go:noinline
func (p *Posted) matchSlow(tag uint64) uint32 {
	i := p.idx.head(tag)
	if p.numWild != 0 {
		return p.matchWild(i, tag)
	}
	if i != 0 {
		p.Remove(i)
	}
	return i
}

// matchWild returns the older of exact, the oldest exact match, and the oldest matching
// wildcard.
func (p *Posted) matchWild(exact uint32, tag uint64) uint32 {
	limit := ^uint64(0)
	if exact != 0 {
		limit = p.idx.nodes[exact].seq
	}
	for i := p.wild.head; i != 0; {
		e := &p.idx.nodes[i]
		if e.seq > limit {
			break
		}
		if (e.tag^tag)&e.mask == 0 {
			p.Remove(i)
			return i
		}
		i = e.next
	}
	if exact != 0 {
		p.Remove(exact)
	}
	return exact
}

// Has reports whether receive id is in p.
func (p *Posted) Has(id uint32) bool {
	return id != 0 && id == p.only || int(id) < len(p.idx.nodes) && p.idx.nodes[id].seq != 0
}

// Remove removes receive id. It returns false if id is not in p.
func (p *Posted) Remove(id uint32) bool {
	if !p.Has(id) {
		return false
	}
	if id == p.only {
		p.only = 0
		return true
	}
	if p.idx.nodes[id].mask == ^uint64(0) {
		p.idx.remove(id)
	} else {
		p.wild.remove(p.idx.nodes, id)
		p.numWild--
	}
	p.n--
	return true
}
