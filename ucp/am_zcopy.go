package ucp

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// zcopy is the range of active messages that a lane sends from the program's memory
// without a copy. The transport reports the minimum length from which that is faster. A
// transport that always gathers into its own memory reports none, and max is 0.
type zcopy struct {
	min, max  int // data, bytes
	maxHeader int // bytes
}

func zcopyOf(l uct.Limit) zcopy {
	if l.MinZcopy == 0 || l.MaxVec == 0 {
		return zcopy{}
	}
	return zcopy{l.MinZcopy, l.MaxZcopy, l.MaxHeader}
}

// fits reports whether a message of these lengths is sent without a copy.
func (z *zcopy) fits(header, n int) bool {
	return n <= z.max && n >= z.min && n > 0 && header <= z.maxHeader
}

// sendZcopy sends the active message in slot i from the program's memory.
func (w *Worker) sendZcopy(i uint32, l *lane) ucs.Status {
	w.am.vec[0].Buf = w.slab.bufs[i]
	st := l.ep.AMZcopy(amUser, w.slab.slots[i].tag, w.savedHeader(i), w.am.vec[:], w.slab.token(i))
	w.am.vec[0].Buf = nil
	if st == ucs.InProgress {
		w.slab.slots[i].partsLeft = 1 // the transport reads the buffer until its completion event
	}
	return st
}
