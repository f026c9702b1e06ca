package ucp

import (
	"encoding/binary"
	"math"

	"github.com/goucx/goucx/ucs"
)

// intoKind is the destination of the fragments of an rx connection.
type intoKind uint8

const (
	intoNothing intoKind = iota // no message is being reassembled
	intoReceive
	intoPool
	intoHandler // pool memory, then a handler
	intoVoid    // none: the receive was canceled, or there is no handler
)

// growLimit is the maximum memory in bytes that is allocated on the length announced by
// a sender. Beyond it, memory grows as the data arrives.
const growLimit = 1 << 20

// first receives the first fragment of a tag message.
func (p *port) first(s *source, tag uint64, data []byte) {
	w := p.w
	if s.into != intoNothing || len(data) <= firstHead {
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
		w.receiveInto(s, i)
	} else {
		s.into = intoPool
		s.chunk = w.hold(int(min(s.total, growLimit)))
		s.arrived = w.addArrived(tag, unexpected{kind: unOpen, n: s.total, from: s.index})
		if w.budget.spent {
			w.slowDown(s)
		}
	}
	w.add(s, data)
}

// receiveInto directs the remaining fragments of s's message to the receive in slot i.
func (w *Worker) receiveInto(s *source, i uint32) {
	s.into, s.recv = intoReceive, i
	r := &w.slab.slots[i]
	r.tag, r.n = s.tag, s.total
}

// next receives a following fragment. An empty one means that the sender canceled the
// message.
func (p *port) next(s *source, number uint64, data []byte) {
	switch {
	case s.into == intoNothing || number != uint64(s.count) || uint64(len(data)) > s.total-s.got:
		p.garbage(s)
	case len(data) == 0:
		p.w.drop(s, ucs.Canceled) // the sender canceled it
	default:
		p.w.add(s, data)
	}
}

// add copies data to the destination of the message, and completes the message with its
// last byte.
func (w *Worker) add(s *source, data []byte) {
	switch s.into {
	case intoReceive:
		if b := w.slab.bufs[s.recv]; s.got < uint64(len(b)) {
			copy(b[s.got:], data)
		}
	case intoPool, intoHandler:
		w.ensureChunk(s, s.got+uint64(len(data)))
		copy(w.pool.bytes(s.chunk)[s.got:], data)
	default:
	}
	s.got += uint64(len(data))
	if s.got == s.total {
		w.complete(s)
	}
}

// ensureChunk makes room for n bytes. The memory doubles up to the length of the
// message.
func (w *Worker) ensureChunk(s *source, n uint64) {
	old := w.pool.bytes(s.chunk)
	if n <= uint64(len(old)) {
		return
	}
	c := w.hold(int(min(s.total, max(n, 2*uint64(len(old))))))
	copy(w.pool.bytes(c), old[:s.got])
	w.unhold(s.chunk)
	s.chunk = c
}

// complete completes the message of s.
func (w *Worker) complete(s *source) {
	into := s.into
	s.into = intoNothing
	switch into {
	case intoReceive:
		st := ucs.OK
		if s.total > uint64(len(w.slab.bufs[s.recv])) {
			st = ucs.Truncated
		}
		w.end(s.recv, st)
	case intoPool:
		u := &w.un[s.arrived]
		u.kind, u.from, u.chunk = unWhole, 0, s.chunk
	case intoHandler:
		w.userComplete(s)
	default:
	}
}

// takeOver matches the message that is being reassembled from s with the receive in
// slot i.
func (w *Worker) takeOver(i uint32, s *source) {
	copy(w.slab.bufs[i], w.pool.bytes(s.chunk)[:s.got])
	w.unhold(s.chunk)
	w.receiveInto(s, i)
}

// drop ends the message that is being reassembled from s, if any. Its receive completes
// with st.
func (w *Worker) drop(s *source, st ucs.Status) {
	into := s.into
	s.into = intoNothing
	switch into {
	case intoReceive:
		w.end(s.recv, st)
	case intoPool:
		w.un[s.arrived].chunk = s.chunk
		w.dropArrived(s.arrived, st)
	case intoHandler:
		w.unhold(s.chunk)
	default:
	}
}

// explain records reason as the error of the receive that s's message goes to.
func (w *Worker) explain(s *source, reason error) {
	if s.into == intoReceive {
		w.keepErr(s.recv, &OpError{Op: opTagRecv.info().name, Err: reason})
	}
}
