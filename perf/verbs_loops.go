package perf

import "github.com/goucx/goucx/verbs"

// fillLists fills the work requests of both kinds. The loops change only what differs between
// messages.
func (s *verbsSide) fillLists() {
	w := verbs.SendWR{Op: verbsOps[s.test.Op], Remote: s.peer.Addr, RKey: s.peer.RKey, Swap: 1, QPN: s.peer.QPN, QKey: s.peer.QKey}
	if s.ah != nil {
		w.AH = s.ah.ID()
	}
	size := s.p.Size()
	s.inline = s.p.Layout == Short && size <= int64(s.maxInline()) && (s.test.Op == OpSend || s.test.Op == OpPut || s.test.Op == OpDatagram)
	if s.inline {
		w.Flags, w.InlineLen = verbs.SendInline, uint8(size)
	} else {
		s.pieces(&w)
	}
	s.limit, s.stride = int64(s.p.window(s.test)), 1
	if s.test.Pattern == PingPong {
		s.limit = 2 * pingPongStride
		s.stride = pingPongStride
	} else {
		s.stride = max(1, s.limit/4)
	}
	s.list = make([]verbs.SendWR, s.p.postList())
	for i := range s.list {
		s.list[i] = w
	}
	s.recvs = make([]verbs.RecvWR, s.recvList())
	for i := range s.recvs {
		r := &s.recvs[i]
		r.NumSG = 1
		r.SG[0] = verbs.SGE{Addr: s.in.Addr(), Len: uint32(len(s.in.Bytes())), LKey: s.in.LKey()}
	}
}

// layout returns how the data of the message is passed.
func (s *verbsSide) layout() Layout {
	if s.inline {
		return Short
	}
	return Zcopy
}

var verbsOps = map[Op]verbs.Opcode{
	OpSend: verbs.OpSend, OpPut: verbs.OpWrite, OpGet: verbs.OpRead, OpFetchAdd: verbs.OpFetchAdd, OpDatagram: verbs.OpSendImm,
}

// pieces fills the list of the message's pieces.
func (s *verbsSide) pieces(w *verbs.SendWR) {
	at := int64(0)
	for i, n := range s.p.Sizes {
		if s.p.Stride > 0 {
			at = int64(i) * s.p.Stride
		}
		w.SG[i] = verbs.SGE{Addr: s.out.Addr() + uint64(at), Len: uint32(n), LKey: s.out.LKey()}
		at += n
	}
	w.NumSG = uint8(len(s.p.Sizes))
}

// verbsStream is a one-way stream of any operation: it posts lists of work requests as the window
// allows.
type verbsStream struct {
	*verbsSide
	due int64 // number of messages of all phases so far
}

func (k *verbsStream) active(n int64, st *stamps) error {
	if err := stream(k, n, st, k.link); err != nil {
		return err
	}
	return k.drain()
}

// passive counts messages; it does not see operations on memory.
func (k *verbsStream) passive(n int64) error {
	if k.test.Op != OpSend {
		return nil
	}
	// The other side may begin while this one is still in the barrier, which already receives its
	// messages. So the messages of all phases are counted.
	for k.due += n; k.got < k.due; {
		if err := k.idle(); err != nil {
			return err
		}
	}
	return nil
}

func (k *verbsStream) each(n int, st *stamps) error { return eachOf(k, n, st) }

//go:noinline
func (k *verbsStream) burst(n int) error {
	for n > 0 {
		c := min(n, len(k.list))
		n -= c
		if err := k.post(c, n == 0); err != nil {
			return err
		}
	}
	return nil
}
