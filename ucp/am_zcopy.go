package ucp

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// zcopy bounds the active messages that a lane sends out of the program's own
// memory. A transport that gains by it says from which length on; one that
// gathers into its own memory anyway says nothing, and max is 0.
type zcopy struct {
	min, max int // data, bytes
	header   int // bytes
}

func zcopyOf(l uct.Limit) zcopy {
	if l.MinZcopy == 0 || l.MaxVec == 0 {
		return zcopy{}
	}
	return zcopy{l.MinZcopy, l.MaxZcopy, l.MaxHead}
}

// takes reports whether a message goes this way.
func (z *zcopy) takes(header, n int) bool {
	return n <= z.max && n >= z.min && n > 0 && header <= z.header
}

// sendZcopy sends the active message in slot i out of the program's memory.
func (w *Worker) sendZcopy(i uint32, l *lane) ucs.Status {
	w.am.vec[0].Buf = w.slab.bufs[i]
	st := l.ep.AMZcopy(amUser, w.slab.slots[i].tag, w.headerOf(i), w.am.vec[:], w.slab.token(i))
	w.am.vec[0].Buf = nil
	if st == ucs.InProgress {
		w.slab.slots[i].left = 1 // the transport has the buffer until its event
	}
	return st
}
