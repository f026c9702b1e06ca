package ucp

// naming is what comes of an id that a peer sent.
type naming uint8

const (
	namesLive    naming = iota // an operation that has not ended
	namesEnded                 // one that has: the message crossed its end
	namesForeign               // none that the peer was ever given
)

// lookUpID says what id stands for, whoever sent it.
func (b *slab) lookUpID(id uint64) (uint32, naming) {
	i, gen := uint32(id), uint32(id>>32)
	if i == 0 || int(i) >= len(b.slots) || gen == 0 || gen > genMask {
		return 0, namesForeign
	}
	s := &b.slots[i]
	switch {
	case s.gen != gen && (s.gen-gen)&genMask > genMask/2:
		return 0, namesForeign // of the future
	case s.gen != gen:
		return 0, namesEnded
	case s.state == slotFree:
		return 0, namesForeign // not given out yet
	case s.state != slotLive:
		return 0, namesEnded
	}
	return i, namesLive
}

// sendNamed gives the send that the sender of s names by id, 0 where it has
// ended. Anything else fails s.
func (p *port) sendNamed(s *source, id uint64) uint32 {
	w := p.w
	i, what := w.slab.lookUpID(id)
	if what == namesEnded && s.peer != 0 {
		w.count.Inc(cntLate)
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

// fetchNamed gives the receive that asked s for its data and goes by id, 0 where
// it has ended. Anything else fails s.
func (p *port) fetchNamed(s *source, id uint64) uint32 {
	w := p.w
	i, what := w.slab.lookUpID(id)
	if what == namesEnded && s.peer != 0 {
		w.count.Inc(cntLate)
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
