package ucp

// chain is a queue of live slots, linked by slot.next and slot.aux. A slot is in
// one chain at most.
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

// unlink takes slot i, which is in c, out of it.
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
