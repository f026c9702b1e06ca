package ucp

import "github.com/goucx/goucx/ucs"

// A transfer refused when it is posted, for its bounds or a missing right, never began, so
// no flush covers it. But a program that drops the request and flushes must not see
// success. So a flush reports the refusal, once, unless a caller has read it.
//
// Worker.unreportedRefusals is an upper bound of the refusals that are neither read nor reported. At 0
// a flush skips the search.

// refusedOp is the slot of a refused transfer, which has formRefused.
type refusedOp struct {
	_        slotHeader
	form     rmaForm
	_        uint32
	endpoint uint64 // id of the endpoint
	_        [24]byte
}

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
		case s.op < opPut || s.op > opFetch || as[refusedOp](s).form&formRefused == 0 || s.state != slotDone:
		case id != 0 && as[refusedOp](s).endpoint != id:
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
