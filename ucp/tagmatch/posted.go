package tagmatch

import "slices"

// Posted holds receives in the order of posting. The zero Posted is empty and ready to
// use.
type Posted struct {
	// run holds receives of the same tag and mask while there are no others: a program that waits for one message at a
	// time, or posts a window of such receives, needs no index. It is a queue from position oldest to end; unused places
	// are 0. While the index is used instead, oldest is end + 1, and the place of end holds noRun.
	run         [256]uint32
	oldest, end uint32 // positions, modulo the length
	tag, mask   uint64 // of all of them

	idx     index
	n       int  // in the index
	wild    list // receives with a wildcard mask
	seq     uint64
	numWild int // in wild
}

const noRun = ^uint32(0)

// usesIndex reports whether there is no run, not even an empty one.
func (p *Posted) usesIndex() bool { return p.run[uint8(p.end)] == noRun }

// Len returns the number of receives.
func (p *Posted) Len() int {
	if p.usesIndex() {
		return p.n
	}
	return int(p.end - p.oldest)
}

// inRun reports whether receive id is in the run.
func (p *Posted) inRun(id uint32) bool { return !p.usesIndex() && slices.Contains(p.run[:], id) }

// Pattern returns the tag and the mask of receive id.
func (p *Posted) Pattern(id uint32) (tag, mask uint64) {
	if p.inRun(id) {
		return p.tag, p.mask
	}
	e := &p.idx.nodes[id]
	return e.tag, e.mask
}

// AddToRun is Add if the tag and the mask are those of the run, or of the one before. Otherwise it may return false, and
// changes nothing.
func (p *Posted) AddToRun(id uint32, tag, mask uint64) bool {
	if p.tag != tag || p.mask != mask || p.run[uint8(p.end)] != 0 {
		return false
	}
	p.run[uint8(p.end)] = id
	p.end++
	return true
}

// Add adds receive id, which is not 0 and not in p. It accepts messages whose tag
// equals tag in the bits of mask. Numbers should be small: memory is allocated up to
// the largest.
//
//hot:bench BenchmarkExpected
//go:noinline
func (p *Posted) Add(id uint32, tag, mask uint64) {
	if p.Len() == 0 {
		p.run[uint8(p.end)], p.oldest = 0, p.end
		p.tag, p.mask = tag, mask
	}
	if !p.AddToRun(id, tag, mask) {
		p.useIndex()
		p.insert(id, tag, mask)
	}
}

// useIndex moves the run to the index.
func (p *Posted) useIndex() {
	if p.usesIndex() {
		return
	}
	for p.Oldest() != 0 {
		id := p.Oldest()
		p.RemoveOldest()
		p.insert(id, p.tag, p.mask)
	}
	p.run[uint8(p.end)], p.oldest = noRun, p.end+1
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

// Accepts reports whether the receives of the run accept a message with this tag. If not, or if there are none, Match may
// find a receive.
func (p *Posted) Accepts(tag uint64) bool { return (p.tag^tag)&p.mask == 0 }

// Oldest returns the oldest receive of the run, 0 if there is none.
func (p *Posted) Oldest() uint32 { return p.run[uint8(p.oldest)] }

// RemoveOldest removes the receive that Oldest returned.
func (p *Posted) RemoveOldest() {
	p.run[uint8(p.oldest)] = 0
	p.oldest++
}

// Match removes and returns the oldest receive that accepts a message with this tag, 0
// if there is none.
//
//hot:bench BenchmarkExpected
//go:noinline
func (p *Posted) Match(tag uint64) uint32 {
	if i := p.Oldest(); i != 0 && p.Accepts(tag) {
		p.RemoveOldest()
		return i
	}
	if p.n == 0 {
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
	return id != 0 && (p.inRun(id) || int(id) < len(p.idx.nodes) && p.idx.nodes[id].seq != 0)
}

// Remove removes receive id. It returns false if id is not in p.
func (p *Posted) Remove(id uint32) bool {
	switch {
	case !p.Has(id):
		return false
	case p.Oldest() == id:
		p.RemoveOldest()
		return true
	}
	p.useIndex()
	if p.idx.nodes[id].mask == ^uint64(0) {
		p.idx.remove(id)
	} else {
		p.wild.remove(p.idx.nodes, id)
		p.numWild--
	}
	p.n--
	return true
}
