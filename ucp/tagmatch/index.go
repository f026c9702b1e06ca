package tagmatch

// node is one entry, at the index that is its number. Entries of one tag form a queue
// through next and prev. prev of the oldest entry is undefined.
type node struct {
	tag, mask  uint64
	seq        uint64 // order of arrival among all entries; 0: not in the index
	next, prev uint32
}

// queue holds the entries of one tag. It stays in the table when it becomes empty,
// because most tags are used again. rebuild removes empty queues.
type queue struct {
	tag  uint64
	head uint32 // the oldest entry; 0: empty
	tail uint32 // the latest entry that was ever added; 0: the table place is free
}

// index finds the queue of a tag. It is a hash table with open addressing, at most half
// full. The tag, head and tail of a queue are on the cache line that the hash selects.
// Number 0 is no entry.
type index struct {
	nodes []node
	table []queue // length is a power of two
	shift uint    // 64 - log2(len(table))
	used  int     // places in table that are not free
}

const startBits = 7

// grow makes room for the entry with number id.
//
//go:noinline
func (x *index) grow(id uint32) {
	if x.table == nil {
		x.table, x.shift = make([]queue, 1<<startBits), 64-startBits
	}
	n := max(int(id)+1, 256, len(x.nodes)+len(x.nodes)/2)
	x.nodes = append(x.nodes, make([]node, n-len(x.nodes))...)
}

// bucket returns where the search for tag starts. It takes the upper bits of the
// product, which depend on all bits of the tag.
func (x *index) bucket(tag uint64) int {
	return int((tag * 0x9E3779B97F4A7C15) >> (x.shift & 63))
}

// find returns the queue of tag, nil if there is none.
func (x *index) find(tag uint64) *queue {
	if len(x.table) == 0 {
		return nil
	}
	for k := x.bucket(tag); ; k++ {
		q := &x.table[k&(len(x.table)-1)]
		if q.tail == 0 {
			return nil
		}
		if q.tag == tag {
			return q
		}
	}
}

// head returns the oldest entry of tag, 0 if there is none.
func (x *index) head(tag uint64) uint32 {
	if q := x.find(tag); q != nil {
		return q.head
	}
	return 0
}

// push adds entry id as the latest of its tag.
//
//hot:bench BenchmarkExpected
func (x *index) push(id uint32, tag uint64) {
	q := &x.table[x.bucket(tag)]
	if q.tail == 0 || q.tag != tag {
		q = x.queueOf(tag)
	}
	n := &x.nodes[id]
	n.next = 0
	if q.head == 0 {
		q.head = id
	} else {
		x.nodes[q.tail].next = id
		n.prev = q.tail
	}
	q.tail = id
}

// queueOf returns the queue of tag. It creates the queue if there is none.
//
//go:noinline
func (x *index) queueOf(tag uint64) *queue {
	if q := x.find(tag); q != nil {
		return q
	}
	if 2*x.used >= len(x.table) {
		x.rebuild()
	}
	x.used++
	k := x.bucket(tag)
	for x.table[k].tail != 0 {
		k = (k + 1) & (len(x.table) - 1)
	}
	x.table[k].tag = tag
	return &x.table[k]
}

// rebuild removes empty queues. It doubles the table if more than a quarter is still
// full. Its cost is amortized over as many calls of claim.
func (x *index) rebuild() {
	old := x.table
	x.used = 0
	for i := range old {
		if old[i].head != 0 {
			x.used++
		}
	}
	size := len(old)
	if 4*x.used > size {
		size *= 2
		x.shift--
	}
	x.table = make([]queue, size)
	for i := range old {
		if old[i].head == 0 {
			continue
		}
		k := x.bucket(old[i].tag)
		for x.table[k].tail != 0 {
			k = (k + 1) & (size - 1)
		}
		x.table[k] = old[i]
	}
}

// remove removes entry id from the queue of its tag.
func (x *index) remove(id uint32) {
	n := &x.nodes[id]
	q := x.find(n.tag)
	n.seq = 0
	switch {
	case q.head == id:
		q.head = n.next
		return
	case n.next == 0:
		q.tail = n.prev
	default:
		x.nodes[n.next].prev = n.prev
	}
	x.nodes[n.prev].next = n.next
}
