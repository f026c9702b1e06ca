package ucp

// idCheck is the result of checking an id that a peer sent. A peer may only name an
// operation that it was sent the id of. Anything else is a protocol violation: see
// sendByID and fetchByID.
type idCheck uint8

const (
	idLive      idCheck = iota // an operation that has not completed
	idCompleted                // an operation that has completed: the message crossed its completion
	idUnknown                  // no operation whose id any peer was sent
)

// checkID classifies an id. It does not check which peer sent it.
func (b *slab) checkID(id uint64) (uint32, idCheck) {
	i, gen := uint32(id), uint32(id>>32)
	if i == 0 || int(i) >= len(b.slots) || gen == 0 || gen > genMask {
		return 0, idUnknown
	}
	s := &b.slots[i]
	switch {
	case s.gen != gen && (s.gen-gen)&genMask > genMask/2:
		return 0, idUnknown // a generation not reached yet
	case s.gen != gen:
		return 0, idCompleted
	case s.state == slotFree:
		return 0, idUnknown // the slot was not used in this generation yet
	case s.state != slotLive:
		return 0, idCompleted
	}
	return i, idLive
}

// sendByID returns the slot of the send with this id, if it goes to the sender of s. It
// returns 0 if the send has completed. Any other id fails s.
func (wi *workerIface) sendByID(rx *rxConn, id uint64) uint32 {
	w := wi.w
	i, what := w.slab.checkID(id)
	if what == idCompleted && rx.peer != 0 {
		w.count.Inc(cntStale)
		return 0
	}
	if what == idLive && rx.peer != 0 {
		if k := &w.slab.slots[i]; k.op.sends() && w.t.lanes[k.lane].peer == rx.peer {
			return i
		}
	}
	wi.protocolError(rx)
	return 0
}

// fetchByID returns the slot of the receive with this id, if it waits for data of s. It
// returns 0 if the receive has completed. Any other id fails s.
func (wi *workerIface) fetchByID(rx *rxConn, id uint64) uint32 {
	w := wi.w
	i, what := w.slab.checkID(id)
	if what == idCompleted && rx.peer != 0 {
		w.count.Inc(cntStale)
		return 0
	}
	if what == idLive {
		if k := &w.slab.slots[i]; k.op.receives() && k.partsLeft == recvRequested && k.aux == rx.index {
			return i
		}
	}
	wi.protocolError(rx)
	return 0
}
