package ucp

// chain is a doubly linked queue of live slots, through slot.next and slot.aux. A slot
// is in at most one chain.
type chain struct{ head, tail uint32 }

func (b *slab) push(c *chain, i uint32) {
	s := &b.slots[i]
	s.next, s.aux = 0, c.tail
	if c.tail == 0 {
		c.head = i
	} else {
		b.slots[c.tail].next = i
	}
	c.tail = i
}

// unlink removes slot i from c, which contains it.
func (b *slab) unlink(c *chain, i uint32) {
	s := &b.slots[i]
	if s.aux == 0 {
		c.head = s.next
	} else {
		b.slots[s.aux].next = s.next
	}
	if s.next == 0 {
		c.tail = s.aux
	} else {
		b.slots[s.next].aux = s.aux
	}
}
