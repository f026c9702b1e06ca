package ucp

import "github.com/goucx/goucx/ucs"

// The fast paths of tag.go and request_recv.go, under the lock.

// tagSendShared is TagSend.
func (e Endpoint) tagSendShared(p []byte, tag Tag) Request {
	w := e.t.w
	w.lockShared()
	if k := uint32(e.id); int(k) < len(w.eps) && w.eps[k].gen == uint32(e.id>>32) {
		l := &w.t.lanes[w.eps[k].lane] // lane 0, if there is none, accepts nothing
		if len(p) <= l.maxShort && l.ep.AMShort(amEager, uint64(tag), p) == ucs.OK {
			w.unlockShared()
			return Request{}
		}
	}
	return w.tagSendUnlock(e, p, tag)
}

//go:noinline
func (w *Worker) tagSendUnlock(e Endpoint, p []byte, tag Tag) Request {
	r := w.tagSend(e, sendParams{op: opTagSend, buf: p, tag: tag, n: len(p)})
	w.unlockShared()
	return r
}

// tagRecvShared is TagRecv.
//
//go:noinline
func (w *Worker) tagRecvShared(p []byte, tag, mask Tag) RecvRequest {
	w.lockShared()
	if w.closing {
		w.unlockShared()
		return RecvRequest{w.t.refuse(opTagRecv, Endpoint{}, ucs.Closed)}
	}
	b := &w.slab
	i := b.alloc(opTagRecv)
	b.slots[i].flags = flagHasResult
	b.bufs[i] = p
	r := RecvRequest{Request{&w.t, b.id(i)}}
	if w.unexpQueue.Len() == 0 || !w.matchUnexpected(i, uint64(tag), uint64(mask)) {
		w.posted.Add(i, uint64(tag), uint64(mask))
	}
	w.unlockShared()
	return r
}

// consumeDone consumes the result of receive id if it has succeeded and has no state outside
// of its slot, as nearly all do. The caller holds the lock.
func (w *Worker) consumeDone(id uint64) (Message, bool) {
	b := &w.slab
	i, g := uint32(id), uint32(id>>32)
	if int(i) >= len(b.slots) {
		return Message{}, false
	}
	s := &b.slots[i]
	if s.gen != g || s.state != slotDone || s.status != ucs.OK || s.flags&flagExtra != 0 {
		return Message{}, false
	}
	s.gen, s.state, s.next = nextGen(g), slotFree, b.free
	b.free = i
	return Message{Tag(s.tag), int(s.length)}, true
}
