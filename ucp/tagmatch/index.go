package tagmatch

// node is one entry, at the index that is its number.
//
// Entries of one tag form a queue through next and prev. Its first entry is the
// tag's head: it alone stands in the bucket's chain of heads (down) and knows
// the queue's end (tail).
//
//	bucket → head(tag A) ─down→ head(tag B) ─down→ 0
//	            │next              │next
//	          entry(A)           entry(B)
type node struct {
	tag, mask  uint64
	seq        uint64 // order of arrival among all; 0: not entered
	next, prev uint32
	down, tail uint32
}

// index finds queues of entries by tag. Number 0 is no entry.
type index struct {
	nodes   []node
	buckets []uint32 // heads; a power of two
	shift   uint     // 64 - log2(len(buckets))
	tags    int      // distinct tags
}

const startBits = 6

func (x *index) init() {
	x.buckets = make([]uint32, 1<<startBits)
	x.shift = 64 - startBits
}

// grow makes room for the entry numbered id.
//
//go:noinline
func (x *index) grow(id uint32) {
	if x.buckets == nil {
		x.init()
	}
	n := max(int(id)+1, 256, len(x.nodes)+len(x.nodes)/2)
	x.nodes = append(x.nodes, make([]node, n-len(x.nodes))...)
}

// bucket is where tag's head would be: the product's upper bits depend on all
// bits of the tag.
func (x *index) bucket(tag uint64) *uint32 {
	return &x.buckets[(tag*0x9E3779B97F4A7C15)>>(x.shift&63)]
}

// head gives the oldest entry of tag, or 0.
func (x *index) head(tag uint64) uint32 {
	if len(x.buckets) == 0 {
		return 0
	}
	i := *x.bucket(tag)
	for i != 0 && x.nodes[i].tag != tag {
		i = x.nodes[i].down
	}
	return i
}

// push adds entry id, whose tag is set, as the youngest of its tag.
// hot: BenchmarkExpected
func (x *index) push(id uint32) {
	e := &x.nodes[id]
	e.next = 0
	b := x.bucket(e.tag)
	first := *b
	if first != 0 {
		if h := &x.nodes[first]; h.tag == e.tag {
			e.prev = h.tail
			x.nodes[h.tail].next = id
			h.tail = id
			return
		}
		x.pushSlow(id, b, first)
		return
	}
	e.prev, e.down, e.tail = 0, 0, id
	*b = id
	x.tags++
}

// pushSlow looks through the heads of bucket b, the first of which has another
// tag.
//
//go:noinline
func (x *index) pushSlow(id uint32, b *uint32, first uint32) {
	e := &x.nodes[id]
	for i := first; i != 0; i = x.nodes[i].down {
		h := &x.nodes[i]
		if h.tag == e.tag {
			x.nodes[h.tail].next = id
			e.prev = h.tail
			h.tail = id
			return
		}
	}
	e.prev, e.down, e.tail = 0, first, id
	*b = id
	x.tags++
	if x.tags > len(x.buckets) {
		x.rehash()
	}
}

// popHead removes entry id, the head of its tag.
func (x *index) popHead(id uint32) {
	e := &x.nodes[id]
	link := x.bucket(e.tag)
	for *link != id {
		link = &x.nodes[*link].down
	}
	e.seq = 0
	if e.next == 0 {
		*link = e.down
		x.tags--
		return
	}
	h := &x.nodes[e.next]
	h.prev, h.down, h.tail = 0, e.down, e.tail
	*link = e.next
}

// remove takes entry id out of its tag's queue.
func (x *index) remove(id uint32) {
	e := &x.nodes[id]
	if e.prev == 0 {
		x.popHead(id)
		return
	}
	e.seq = 0
	x.nodes[e.prev].next = e.next
	if e.next != 0 {
		x.nodes[e.next].prev = e.prev
		return
	}
	x.nodes[x.head(e.tag)].tail = e.prev
}

// rehash doubles the buckets. Called when there are as many tags as buckets, so
// its cost spreads over as many pushes.
//
//go:noinline
func (x *index) rehash() {
	old := x.buckets
	x.buckets = make([]uint32, 2*len(old))
	x.shift--
	for _, i := range old {
		for i != 0 {
			e := &x.nodes[i]
			b := x.bucket(e.tag)
			next := e.down
			e.down, *b = *b, i
			i = next
		}
	}
}

// list is a queue of entries in the order of their arrival.
type list struct{ head, tail uint32 }

func (l *list) push(ns []node, id uint32) {
	e := &ns[id]
	e.next, e.prev = 0, l.tail
	if l.tail == 0 {
		l.head = id
	} else {
		ns[l.tail].next = id
	}
	l.tail = id
}

func (l *list) remove(ns []node, id uint32) {
	e := &ns[id]
	if e.prev == 0 {
		l.head = e.next
	} else {
		ns[e.prev].next = e.next
	}
	if e.next == 0 {
		l.tail = e.prev
	} else {
		ns[e.next].prev = e.prev
	}
	e.seq = 0
}
