package ucp

import "github.com/goucx/goucx/ucs"

// A transfer that is refused at the call, for its bounds or a right, belongs to no
// flush: it never began. But whoever drops its request and flushes must not hear
// that all went well, so the flush reports it, once, where nobody has read it.

// auxRefused in the aux of a transfer's slot marks one that was refused; arg has its endpoint's handle.
const auxRefused = 1 << 31

// refusedSince gives the slot of the first refused transfer of the endpoint with
// handle id, or of any where id is 0, that nobody has read, and counts them all as
// read. 0: none.
func (w *Worker) refusedSince(id uint64) (first uint32) {
	if w.unread == 0 {
		return 0
	}
	w.unread = 0
	b := &w.slab
	for i := b.orphHead; i != 0; i = b.slots[i].next {
		s := &b.slots[i]
		switch {
		case s.op < opPut || s.op > opFetch || s.aux&auxRefused == 0 || s.state != slotDone:
		case id != 0 && s.arg != id:
			w.unread++
		default:
			s.state = slotRead
			if first == 0 {
				first = i
			}
		}
	}
	return first
}

// refused makes the flush fail with what was refused before it.
func (f *flush) refused(id uint64) {
	w := f.w
	i := w.refusedSince(id)
	if i == 0 {
		return
	}
	err := w.slotErr(i)
	if f.parent == 0 {
		f.parent = w.slab.take(opFlush)
		w.slab.slots[f.parent].ep = f.ep
	}
	if s := &w.slab.slots[f.parent]; s.status == ucs.OK {
		s.status = ucs.InvalidParam
		w.keepErr(f.parent, err)
	}
}
