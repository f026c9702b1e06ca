package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
)

// handleEager receives a whole message.
//
//hot:bench BenchmarkTagPair
//go:nosplit
func (w *Worker) handleEager(tag uint64, data []byte) {
	i := w.posted.Match(tag)
	if i == 0 {
		w.queueUnexpected(tag, data)
		return
	}
	s := &w.slab.slots[i]
	if p := w.slab.bufs[i]; len(data) == 8 && len(p) >= 8 && s.flags == flagHasResult {
		s.tag, s.length = tag, 8
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(data))
		s.state = slotDone
		return
	}
	w.deliver(i, tag, data)
}

// deliver completes the receive in slot i with data.
//
//hot:bench BenchmarkTagPair
func (w *Worker) deliver(i uint32, tag uint64, data []byte) {
	s := &w.slab.slots[i]
	p := w.slab.bufs[i]
	s.tag, s.length = tag, uint64(len(data))
	if copy(p, data) < len(data) {
		w.endSlow(i, ucs.Truncated)
		return
	}
	if s.flags == flagHasResult {
		s.state = slotDone
		return
	}
	w.endSlow(i, ucs.OK)
}
