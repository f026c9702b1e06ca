package ucp

import (
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
)

// A transfer refused when it is posted, for its bounds or a missing right, never began, so
// no flush covers it. But a program that drops the request and flushes must not see
// success. So a flush reports the refusal, once, unless a caller has read it.
//
// Worker.unreportedRefusals is an upper bound of the refusals that are neither read nor reported. At 0
// a flush skips the search.

// refusedOp is the slot of a refused transfer, which has formRefused.
type refusedOp struct {
	_        request.Header
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
	for i := b.Unclaimed; i != 0; i = b.Slots[i].Next {
		s := &b.Slots[i]
		switch {
		case s.Op < request.Put || s.Op > request.Fetch || request.As[refusedOp](s).form&formRefused == 0 || s.State != request.StateDone:
		case id != 0 && request.As[refusedOp](s).endpoint != id:
			w.unreportedRefusals++
		default:
			s.State = request.StateRead
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
		f.parent = w.slab.Alloc(request.Flush)
		w.slab.Slots[f.parent].EP = f.ep
	}
	if s := &w.slab.Slots[f.parent]; s.Status == ucs.OK {
		s.Status = ucs.InvalidParam
		w.saveErr(f.parent, err)
	}
}
