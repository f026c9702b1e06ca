package ucp

// naming is the result of checking an id that a peer sent. A peer may only name an
// operation that it was sent the id of. Anything else is a protocol violation: see
// sendNamed and fetchNamed.
type naming uint8

const (
	namesLive    naming = iota // an operation that has not completed
	namesEnded                 // an operation that has completed: the message crossed its completion
	namesForeign               // no operation whose id any peer was sent
)

// lookUpID classifies an id. It does not check which peer sent it.
func (b *slab) lookUpID(id uint64) (uint32, naming) {
	i, gen := uint32(id), uint32(id>>32)
	if i == 0 || int(i) >= len(b.slots) || gen == 0 || gen > genMask {
		return 0, namesForeign
	}
	s := &b.slots[i]
	switch {
	case s.gen != gen && (s.gen-gen)&genMask > genMask/2:
		return 0, namesForeign // a generation not reached yet
	case s.gen != gen:
		return 0, namesEnded
	case s.state == slotFree:
		return 0, namesForeign // the slot was not used in this generation yet
	case s.state != slotLive:
		return 0, namesEnded
	}
	return i, namesLive
}

// sendNamed returns the slot of the send with this id, if it goes to the sender of s. It
// returns 0 if the send has completed. Any other id fails s.
func (p *port) sendNamed(s *source, id uint64) uint32 {
	w := p.w
	i, what := w.slab.lookUpID(id)
	if what == namesEnded && s.peer != 0 {
		w.count.Inc(cntStale)
		return 0
	}
	if what == namesLive && s.peer != 0 {
		if k := &w.slab.slots[i]; k.op.sends() && w.t.lanes[k.lane].peer == s.peer {
			return i
		}
	}
	p.garbage(s)
	return 0
}

// fetchNamed returns the slot of the receive with this id, if it waits for data of s. It
// returns 0 if the receive has completed. Any other id fails s.
func (p *port) fetchNamed(s *source, id uint64) uint32 {
	w := p.w
	i, what := w.slab.lookUpID(id)
	if what == namesEnded && s.peer != 0 {
		w.count.Inc(cntStale)
		return 0
	}
	if what == namesLive {
		if k := &w.slab.slots[i]; k.op.receives() && k.left == fetching && k.aux == s.index {
			return i
		}
	}
	p.garbage(s)
	return 0
}
