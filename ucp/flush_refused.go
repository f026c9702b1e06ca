package ucp

import "github.com/goucx/goucx/ucs"

// A transfer refused when it is posted, for its bounds or a missing right, never began, so
// no flush covers it. But a program that drops the request and flushes must not see
// success. So a flush reports the refusal, once, unless a caller has read it.
//
// Worker.unreportedRefusals is an upper bound of the refusals that are neither read nor reported. At 0
// a flush skips the search.

// auxRefused, in the aux of a transfer's slot, marks a refused transfer. Its arg is the id
// of the endpoint.
const auxRefused = 1 << 31

// firstRefusal returns the slot of the first unread refused transfer of the endpoint
// with this id, or of any endpoint if id is 0. It marks all of them as read. It returns
// 0 if there is none.
func (w *thread) firstRefusal(id uint64) (first uint32) {
	if w.unreportedRefusals == 0 {
		return 0
	}
	w.unreportedRefusals = 0
	b := &w.slab
	for i := b.unclaimedHead; i != 0; i = b.slots[i].next {
		s := &b.slots[i]
		switch {
		case s.op < opPut || s.op > opFetch || s.aux&auxRefused == 0 || s.state != slotDone:
		case id != 0 && s.arg != id:
			w.unreportedRefusals++
		default:
			s.state = slotRead
			if first == 0 {
				first = i
			}
		}
	}
	return first
}

// addRefusals makes the flush fail with the first unread refusal.
func (f *flush) addRefusals(id uint64) {
	w := f.w
	i := w.firstRefusal(id)
	if i == 0 {
		return
	}
	err := w.slotErr(i)
	if f.parent == 0 {
		f.parent = w.slab.alloc(opFlush)
		w.slab.slots[f.parent].ep = f.ep
	}
	if s := &w.slab.slots[f.parent]; s.status == ucs.OK {
		s.status = ucs.InvalidParam
		w.saveErr(f.parent, err)
	}
}
