package tagmatch

// list is a queue of entries in the order of arrival.
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
