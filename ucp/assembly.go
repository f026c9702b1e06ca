package ucp

import (
	"encoding/binary"
	"math"

	"github.com/goucx/goucx/ucs"
)

// reasmTarget is the destination of the fragments of an rx connection.
type reasmTarget uint8

const (
	reasmNone reasmTarget = iota // no message is being reassembled
	reasmRecv
	reasmPool
	reasmHandler // pool memory, then a handler
	reasmDiscard    // none: the receive was canceled, or there is no handler
)

// maxPrealloc is the maximum memory in bytes that is allocated on the length announced by
// a sender. Beyond it, memory grows as the data arrives.
const maxPrealloc = 1 << 20

// handleFirst receives the first fragment of a tag message.
func (p *port) handleFirst(s *source, tag uint64, data []byte) {
	w := p.w
	if s.into != reasmNone || len(data) <= firstHead {
		p.garbage(s)
		return
	}
	s.total, s.got, s.tag = binary.LittleEndian.Uint64(data), 0, tag
	data = data[firstHead:]
	if s.total > math.MaxInt || uint64(len(data)) >= s.total {
		p.garbage(s)
		return
	}
	s.count++
	if i := w.posted.Match(tag); i != 0 {
		w.reassembleInto(s, i)
	} else {
		s.into = reasmPool
		s.chunk = w.allocBudgeted(int(min(s.total, maxPrealloc)))
		s.arrived = w.addArrived(tag, unexpected{kind: unOpen, n: s.total, from: s.index})
		if w.budget.exhausted {
			w.requestRndvOnly(s)
		}
	}
	w.addFragment(s, data)
}

// reassembleInto directs the remaining fragments of s's message to the receive in slot i.
func (w *Worker) reassembleInto(s *source, i uint32) {
	s.into, s.recv = reasmRecv, i
	r := &w.slab.slots[i]
	r.tag, r.n = s.tag, s.total
}

// handleNext receives a following fragment. An empty one means that the sender canceled the
// message.
func (p *port) handleNext(s *source, number uint64, data []byte) {
	switch {
	case s.into == reasmNone || number != uint64(s.count) || uint64(len(data)) > s.total-s.got:
		p.garbage(s)
	case len(data) == 0:
		p.w.dropPartial(s, ucs.Canceled) // the sender canceled it
	default:
		p.w.addFragment(s, data)
	}
}

// addFragment copies data to the destination of the message, and completes the message with its
// last byte.
func (w *Worker) addFragment(s *source, data []byte) {
	switch s.into {
	case reasmRecv:
		if b := w.slab.bufs[s.recv]; s.got < uint64(len(b)) {
			copy(b[s.got:], data)
		}
	case reasmPool, reasmHandler:
		w.growChunk(s, s.got+uint64(len(data)))
		copy(w.pool.bytes(s.chunk)[s.got:], data)
	default:
	}
	s.got += uint64(len(data))
	if s.got == s.total {
		w.messageComplete(s)
	}
}

// growChunk makes room for n bytes. The memory doubles up to the length of the
// message.
func (w *Worker) growChunk(s *source, n uint64) {
	old := w.pool.bytes(s.chunk)
	if n <= uint64(len(old)) {
		return
	}
	c := w.allocBudgeted(int(min(s.total, max(n, 2*uint64(len(old))))))
	copy(w.pool.bytes(c), old[:s.got])
	w.freeBudgeted(s.chunk)
	s.chunk = c
}

// messageComplete completes the message of s.
func (w *Worker) messageComplete(s *source) {
	into := s.into
	s.into = reasmNone
	switch into {
	case reasmRecv:
		st := ucs.OK
		if s.total > uint64(len(w.slab.bufs[s.recv])) {
			st = ucs.Truncated
		}
		w.end(s.recv, st)
	case reasmPool:
		u := &w.un[s.arrived]
		u.kind, u.from, u.chunk = unWhole, 0, s.chunk
	case reasmHandler:
		w.userReassembled(s)
	default:
	}
}

// matchPartial matches the message that is being reassembled from s with the receive in
// slot i.
func (w *Worker) matchPartial(i uint32, s *source) {
	copy(w.slab.bufs[i], w.pool.bytes(s.chunk)[:s.got])
	w.freeBudgeted(s.chunk)
	w.reassembleInto(s, i)
}

// dropPartial ends the message that is being reassembled from s, if any. Its receive completes
// with st.
func (w *Worker) dropPartial(s *source, st ucs.Status) {
	into := s.into
	s.into = reasmNone
	switch into {
	case reasmRecv:
		w.end(s.recv, st)
	case reasmPool:
		w.un[s.arrived].chunk = s.chunk
		w.dropArrived(s.arrived, st)
	case reasmHandler:
		w.freeBudgeted(s.chunk)
	default:
	}
}

// setRecvErr records reason as the error of the receive that s's message goes to.
func (w *Worker) setRecvErr(s *source, reason error) {
	if s.into == reasmRecv {
		w.saveErr(s.recv, &OpError{Op: opTagRecv.info().name, Err: reason})
	}
}
