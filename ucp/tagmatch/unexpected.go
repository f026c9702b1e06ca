package tagmatch

// Unexpected holds the unexpected messages in the order of arrival. The zero Unexpected is
// empty and ready to use. It numbers its entries from 1 and reuses freed numbers. So an
// array of the caller indexed by number is no longer than the maximum number of
// messages ever held.
type Unexpected struct {
	idx   index
	order []links // links of the list of all entries, by arrival
	list  struct{ head, tail uint32 }
	free  uint32 // first free number; the list continues in node.next
	top   uint32 // numbers 1..top were used
	n     int
	seq   uint64
}

type links struct{ next, prev uint32 }

// Len returns the number of messages.
func (a *Unexpected) Len() int { return a.n }

// Add adds a message and returns its number.
func (a *Unexpected) Add(tag uint64) uint32 {
	id := a.free
	if id != 0 {
		a.free = a.idx.nodes[id].next
	} else {
		a.top++
		id = a.top
		if int(id) >= len(a.idx.nodes) {
			a.idx.grow(id)
		}
		a.order = append(a.order, make([]links, len(a.idx.nodes)-len(a.order))...)
	}
	a.seq++
	a.idx.nodes[id].tag, a.idx.nodes[id].seq = tag, a.seq
	a.idx.push(id, tag)
	a.order[id] = links{prev: a.list.tail}
	if a.list.tail == 0 {
		a.list.head = id
	} else {
		a.order[a.list.tail].next = id
	}
	a.list.tail = id
	a.n++
	return id
}

// Match removes the oldest message whose tag equals tag in the bits of mask. It returns
// the message's number, 0 if there is none. The number stays in use until Free.
func (a *Unexpected) Match(tag, mask uint64) uint32 {
	if a.n == 0 {
		return 0
	}
	id := a.Find(tag, mask)
	if id != 0 {
		a.Remove(id)
	}
	return id
}

// Find returns the number of the oldest message whose tag equals tag in the bits of
// mask, 0 if there is none. It does not remove the message.
func (a *Unexpected) Find(tag, mask uint64) uint32 {
	if mask == ^uint64(0) {
		return a.idx.head(tag)
	}
	for i := a.list.head; i != 0; i = a.order[i].next {
		if (a.idx.nodes[i].tag^tag)&mask == 0 {
			return i
		}
	}
	return 0
}

// Tag returns the tag of message id. It is valid until Free.
func (a *Unexpected) Tag(id uint32) uint64 { return a.idx.nodes[id].tag }

// Remove removes message id, which is in a, from matching.
func (a *Unexpected) Remove(id uint32) {
	a.idx.remove(id)
	o := a.order[id]
	if o.prev == 0 {
		a.list.head = o.next
	} else {
		a.order[o.prev].next = o.next
	}
	if o.next == 0 {
		a.list.tail = o.prev
	} else {
		a.order[o.next].prev = o.prev
	}
	a.n--
}

// Free frees the number of a removed message.
func (a *Unexpected) Free(id uint32) {
	a.idx.nodes[id].next = a.free
	a.free = id
}
