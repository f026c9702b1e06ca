package ucp

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// cancel withdraws the operation in slot i. A message or its receive ends at
// once, whatever the peer does, and the buffer is the caller's; RMA, flush and
// fence are not withdrawn.
func (w *Worker) cancel(i uint32) {
	s := &w.slab.slots[i]
	switch {
	case s.op.receives():
		w.cancelRecv(i)
	case s.op.sends() && (s.left > 0 || s.lends()): // its buffer is in use; the end of that ends it
	case s.op.sends():
		lane := s.lane
		w.withdraw(i)
		w.end(i, ucs.Canceled)
		w.feed(lane) // what waits behind it may need no credit
	default:
	}
}

// cancelRecv ends the receive in slot i. The message, where one was matched, is
// lost.
func (w *Worker) cancelRecv(i uint32) {
	s := &w.slab.slots[i]
	if s.op == opTagRecv && w.posted.Remove(i) {
		w.end(i, ucs.Canceled)
		return
	}
	if s.left == fetching {
		w.refuse(w.sources[s.aux], s.arg, ucs.Canceled, "its receive was canceled")
		w.endFetch(i, ucs.Canceled)
		return
	}
	for _, src := range w.sources {
		if src != nil && src.into == intoReceive && src.recv == i {
			src.into = intoVoid
			w.end(i, ucs.Canceled)
			return
		}
	}
}

// withdraw tells the peer that what he has of the send in slot i is all. The
// send ends right after it.
func (w *Worker) withdraw(i uint32) {
	s := &w.slab.slots[i]
	switch s.phase() {
	case phaseRTS:
		w.control(s.lane, control{id: amGiveUp, hdr: w.slab.id(i), n: 1, a: giveUpAnnounced})
	case phaseData:
		if s.off < s.n {
			w.control(s.lane, control{id: amGiveUp, hdr: s.tag, n: 1, a: giveUpData})
		}
	case phaseNew:
		if s.off > 0 {
			w.giveUpHalfSent(i)
		}
	default: // his memory has it whole, or he knows nothing of it
	}
}

// giveUpHalfSent tells the receiver that the message in slot i, of which it has
// fragments, will not be continued. That news takes the place of its token in
// the lane's queue: it has to come before the next message in fragments.
func (w *Worker) giveUpHalfSent(i uint32) {
	lane, number := w.slab.slots[i].lane, w.slab.slots[i].aux
	var waiting []uint32
	w.t.lanes[lane].ep.PendingPurge(func(t uct.Token) {
		k := w.slab.find(uint64(t))
		if k == 0 || w.slab.slots[k].state != slotLive {
			return
		}
		w.unwait(k)
		if k == i {
			k = w.slab.take(opGiveUp)
			g := &w.slab.slots[k]
			g.lane, g.aux, g.flags = lane, number, flagReported
		}
		waiting = append(waiting, k)
	})
	for _, k := range waiting {
		if st := w.try(k); st != ucs.InProgress {
			w.end(k, st)
		}
	}
}

// abort ends the operations of endpoint k that have not ended.
func (w *Worker) abort(k uint32, reason error) {
	lane := w.eps[k].lane
	starved := w.t.lanes[lane].starved
	w.t.lanes[lane].starved = false // what waits behind the endpoint's sends is its own too
	w.abortAll(k, reason)
	w.t.lanes[lane].starved = starved
	w.feed(lane)
	for i := w.laneOf[w.eps[k].peer]; i != 0; i = w.t.lanes[i].next {
		if w.t.lanes[i].flushes > 0 {
			w.letFlushesGo(i) // a flush of the worker may have waited behind one of the endpoint
		}
	}
}

func (w *Worker) abortAll(k uint32, reason error) {
	for i := uint32(1); int(i) < len(w.slab.slots); i++ {
		s := &w.slab.slots[i]
		if s.state != slotLive || s.ep != k {
			continue
		}
		if s.flags&flagChild != 0 {
			// Its parent ends here too, so nobody is to hear of it; its token is
			// skipped where it waits, on a lane that may go on for others.
			w.unwait(i)
			if s.op == opFlush {
				w.leaveFlush(i)
			}
			w.slab.release(i)
			continue
		}
		if s.op == opTagRecv && !w.posted.Remove(i) {
			continue // matched: its message is complete soon
		}
		s.status = ucs.Canceled
		if s.left > 0 && s.op != opFlush && !s.emulated() || s.lends() && w.t.lanes[s.lane].refs > 1 {
			continue // the transport, or the peer by a connection that others use, has its buffer; the end of that ends it
		}
		if s.op.sends() {
			w.withdraw(i)
		}
		w.keepErr(i, &OpError{Op: w.slab.slots[i].op.info().name, Peer: w.peerName(k), Lane: w.laneName(w.slab.slots[i].lane), Err: reason})
		w.end(i, ucs.Canceled)
	}
}
