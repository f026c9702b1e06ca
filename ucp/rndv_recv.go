package ucp

import (
	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs"
)

// arriveRTS receives an RTS.
func (p *port) arriveRTS(s *source, tag uint64, data []byte) {
	w := p.w
	if len(data) != rtsLen || s.peer == 0 {
		p.garbage(s)
		return
	}
	id, n := payloadUint64(data, 0), payloadUint64(data, 1)
	if n > maxMessage {
		p.garbage(s)
		return
	}
	if i := w.posted.Match(tag); i != 0 {
		w.slab.slots[i].tag = tag
		w.askFor(s, i, id, n)
		return
	}
	if w.refusing {
		w.refuse(s, id, ucs.Rejected, "its worker closes")
		return
	}
	s.waiting++
	w.addArrived(tag, unexpected{kind: unRTS, n: n, id: id, from: s.index})
}

// askFor requests n bytes from the sender of s, which sent an RTS with this id. They go
// into the buffer of slot i, as far as it is long enough. The receive in slot i completes
// when they have arrived. It is truncated if n is larger than the buffer.
func (w *Worker) askFor(s *source, i uint32, id, n uint64) {
	if fault.Enabled {
		fault.At(fault.RTR)
	}
	r := &w.slab.slots[i]
	r.n, r.arg, r.off = n, id, 0
	r.left, r.aux = fetching, s.index
	r.ep, r.flags = 0, r.flags&^flagTied // from now on the receive depends on the message's sender
	s.fetches++
	w.count.Inc(cntRndvRequested)
	wanted := min(n, uint64(len(w.slab.bufs[i])))
	ask := control{id: amRTR, hdr: id, n: rtrLen, a: w.slab.id(i), b: wanted}
	if w.readsFrom(s, wanted) {
		ask.id = amRTL
		w.slab.slots[i].parent = awaitsKey
	}
	if !w.reply(s, ask) {
		w.endFetch(i, ucs.Unreachable)
		return
	}
	if wanted == 0 {
		w.fetched(i)
	}
}

// fetched completes a receive whose data has arrived.
func (w *Worker) fetched(i uint32) {
	st := ucs.OK
	if w.slab.slots[i].n > uint64(len(w.slab.bufs[i])) {
		st = ucs.Truncated
	}
	w.endFetch(i, st)
}

// endFetch completes a receive that has requested its data.
func (w *Worker) endFetch(i uint32, st ucs.Status) {
	r := &w.slab.slots[i]
	w.sources[r.aux].fetches--
	r.left = 0
	w.end(i, st)
}

// data receives the next bytes of a requested message.
func (p *port) data(s *source, id uint64, data []byte) {
	w := p.w
	i := p.fetchNamed(s, id)
	if i == 0 {
		return
	}
	r := &w.slab.slots[i]
	b := w.slab.bufs[i]
	wanted := min(r.n, uint64(len(b)))
	if len(data) == 0 || uint64(len(data)) > wanted-r.off {
		p.garbage(s)
		return
	}
	copy(b[r.off:], data)
	r.off += uint64(len(data))
	if r.off == wanted {
		w.fetched(i)
	}
}

// refuse notifies the sender of s that its message with this id will not be
// received, and why.
func (w *Worker) refuse(s *source, id uint64, st ucs.Status, reason string) {
	w.count.Inc(cntRejected)
	reason = reason[:min(len(reason), maxReason)]
	w.reply(s, control{id: amRefuse, hdr: id, text: append([]byte{byte(st)}, reason...)})
}

// gaveUp receives a cancel of the sender. data is giveUpAnnounced or giveUpData.
func (p *port) gaveUp(s *source, id uint64, data []byte) {
	w := p.w
	switch {
	case len(data) != 1 || data[0] > giveUpData || s.peer == 0:
		p.garbage(s)
	case data[0] == giveUpData:
		if i := p.fetchNamed(s, id); i != 0 {
			w.endFetch(i, ucs.Canceled)
		}
	case s.waiting > 0 && w.dropAnnounced(s, id):
	case s.fetches > 0:
		for i := range w.slab.slots {
			if r := &w.slab.slots[i]; r.fetchesFrom(s) && r.arg == id {
				w.endFetch(uint32(i), ucs.Canceled)
				return
			}
		}
	default: // it crossed a message of this worker
	}
}

// fetchesFrom reports whether the slot is a receive that has requested data from src.
func (s *slot) fetchesFrom(src *source) bool {
	return s.op.receives() && s.state == slotLive && s.left == fetching && s.aux == src.index
}

// dropAnnounced drops the message of s whose RTS has this id, unless a receive has
// requested it. It returns false if there is none.
func (w *Worker) dropAnnounced(s *source, id uint64) bool {
	for k := range w.un {
		if u := &w.un[k]; u.kind == unRTS && u.from == s.index && u.id == id {
			w.dropArrived(uint32(k), ucs.Canceled)
			return true
		}
	}
	return w.dropPrefetches(s, id, false) || w.am.retainer.cancelRndv(s, id)
}

// loseRendezvous fails the messages that s announced and the receives that
// requested data from it.
func (w *Worker) loseRendezvous(s *source, reason error) {
	if s.waiting > 0 {
		w.dropPrefetches(s, 0, true)
		w.am.retainer.failRndvs(s, reason)
		for k := range w.un {
			u := &w.un[k]
			if u.from != s.index {
				continue
			}
			switch u.kind {
			case unRTS:
				w.dropArrived(uint32(k), ucs.PeerFailed)
			case unSync:
				u.kind, u.from = unWhole, 0 // the message has arrived, and its sender is dead
				s.waiting--
			default:
			}
		}
	}
	for i := 0; s.fetches > 0 && i < len(w.slab.slots); i++ {
		if r := &w.slab.slots[i]; r.fetchesFrom(s) {
			w.saveErr(uint32(i), &OpError{Op: r.op.info().name, Peer: w.sourceName(s), Err: reason})
			w.endFetch(uint32(i), ucs.PeerFailed)
		}
	}
}

func (w *Worker) sourceName(s *source) string {
	if s.peer == 0 {
		return ""
	}
	return shortID(w.peers.UUID(s.peer))
}
