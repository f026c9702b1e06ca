package perf

import (
	"fmt"

	"github.com/goucx/goucx/verbs"
)

// fillLists fills the work requests of both kinds; the loops change only what
// differs from message to message.
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

// verbsStream is one way of any operation: lists of work requests as the window
// allows.
type verbsStream struct{ *verbsSide }

func (k *verbsStream) active(n int64, st *stamps) error {
	if err := stream(k, n, st, k.link); err != nil {
		return err
	}
	return k.drain()
}

// passive counts messages; of operations on memory it knows nothing.
func (k *verbsStream) passive(n int64) error {
	if k.test.Op != OpSend {
		return nil
	}
	for end := k.got + n; k.got < end; {
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

// verbsSend is the ping-pong of messages.
type verbsSend struct {
	*verbsSide
	scratch *stamps
	seq     int64 // number of the last message awaited
}

func newVerbsSend(s *verbsSide) kernel { return &verbsSend{verbsSide: s, scratch: newScratch()} }

func (k *verbsSend) active(n int64, st *stamps) error {
	if err := k.send(k.seq + 1); err != nil {
		return err
	}
	st.restamp()
	if err := k.loop(n-1, st, 1); err != nil {
		return err
	}
	err := k.await()
	st.tick()
	return err
}

func (k *verbsSend) passive(n int64) error { return k.loop(n, k.scratch, 0) }

// loop answers n messages; the side that began is one ahead.
func (k *verbsSend) loop(n int64, st *stamps, lead int64) error {
	if k.p.Validate {
		return k.echoChecked(n, st, lead)
	}
	return k.echo(n, st)
}

// await waits for the next message.
func (k *verbsSend) await() error {
	k.seq++
	for k.got < k.seq {
		if err := k.idle(); err != nil {
			return err
		}
	}
	if k.p.Validate {
		return k.verify()
	}
	return nil
}

func (k *verbsSend) verify() error {
	in := k.in.Bytes()[:k.p.Size()]
	if at := check(in, k.seq); at >= 0 {
		return fmt.Errorf("over %s: message %d is wrong at byte %d: %#x", k.name, k.seq, at, in[at])
	}
	return nil
}

// send sends message seq outside of the measured loop.
func (k *verbsSend) send(seq int64) error {
	if k.p.Validate {
		fill(k.message(), seq)
	}
	return k.post(1, false)
}

//go:noinline
func (k *verbsSend) echo(n int64, st *stamps) error {
	for range n {
		k.seq++
		for k.got < k.seq {
			if err := k.idle(); err != nil {
				return err
			}
		}
		if err := k.post(1, false); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}

//go:noinline
func (k *verbsSend) echoChecked(n int64, st *stamps, lead int64) error {
	for range n {
		if err := k.await(); err != nil {
			return err
		}
		if err := k.send(k.seq + lead); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}

// verbsWrite is the ping-pong of RDMA writes: each side sees a message in its
// last byte, where the other one writes the message's number.
type verbsWrite struct {
	*verbsSide
	scratch *stamps
	last    lastByte
	end     *byte // the message's last byte
	seq     byte  // number of the last message awaited
}

func newVerbsWrite(s *verbsSide) kernel {
	k := &verbsWrite{verbsSide: s, scratch: newScratch(), last: newLastByte(s.in.Bytes(), s.p.Size())}
	if s.inline {
		k.end = &s.list[0].Inline[s.p.Size()-1]
	} else {
		at := s.p.Size() - 1
		if s.p.Stride > 0 { // the last piece does not fill its slot
			i := len(s.p.Sizes) - 1
			at = s.p.Stride*int64(i) + s.p.Sizes[i] - 1
		}
		k.end = &s.out.Bytes()[at]
	}
	return k
}

func (k *verbsWrite) active(n int64, st *stamps) error {
	if err := k.write(k.seq + 1); err != nil {
		return err
	}
	st.restamp()
	if err := k.loop(n-1, st, 1); err != nil {
		return err
	}
	err := k.await()
	st.tick()
	return err
}

func (k *verbsWrite) passive(n int64) error { return k.loop(n, k.scratch, 0) }

func (k *verbsWrite) loop(n int64, st *stamps, lead byte) error {
	if k.p.Validate {
		return k.echoChecked(n, st, lead)
	}
	return k.echo(n, st, lead)
}

// await waits for the next message.
func (k *verbsWrite) await() error {
	k.seq++
	for !k.last.is(k.seq) {
		if err := k.idle(); err != nil {
			return err
		}
	}
	if !k.p.Validate {
		return nil
	}
	if err := awaitPattern(k.in.Bytes()[:k.p.Size()], k.seq, k.idle); err != nil {
		return fmt.Errorf("over %s: %w", k.name, err)
	}
	return nil
}

// write sends message seq outside of the measured loop.
func (k *verbsWrite) write(seq byte) error {
	if k.p.Validate {
		fill(k.message(), int64(seq))
	}
	*k.end = seq
	return k.post(1, false)
}

//go:noinline
func (k *verbsWrite) echo(n int64, st *stamps, lead byte) error {
	last, end := k.last, k.end
	for range n {
		k.seq++
		for !last.is(k.seq) {
			if err := k.idle(); err != nil {
				return err
			}
		}
		*end = k.seq + lead
		if err := k.post(1, false); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}

//go:noinline
func (k *verbsWrite) echoChecked(n int64, st *stamps, lead byte) error {
	for range n {
		if err := k.await(); err != nil {
			return err
		}
		if err := k.write(k.seq + lead); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}
