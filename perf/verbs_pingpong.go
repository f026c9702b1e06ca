package perf

import "fmt"

// verbsPingPong is a ping-pong between two sides.
type verbsPingPong struct {
	verbsEnd
	checked bool
	scratch *stamps
}

// verbsEnd is one side of a ping-pong. Messages are numbered. lead is the difference between the
// number of the next message to send and that of the last one received: 1 on the side that began.
type verbsEnd interface {
	// echo waits for a message and sends one, n times.
	echo(n int64, st *stamps, lead int) error
	// await waits for the next message, and validates it if requested.
	await() error
	// send sends a message outside of the measured loop.
	send(lead int) error
	progress()
	transports() string
	close() error
}

func newVerbsPingPong(s *verbsSide) kernel {
	k := &verbsPingPong{checked: s.p.Validate, scratch: newScratch()}
	if s.test.Op == OpPut {
		k.verbsEnd = newVerbsWrite(s)
	} else {
		k.verbsEnd = newVerbsSend(s)
	}
	return k
}

func (k *verbsPingPong) active(n int64, st *stamps) error {
	if err := k.send(1); err != nil {
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

func (k *verbsPingPong) passive(n int64) error { return k.loop(n, k.scratch, 0) }

func (k *verbsPingPong) loop(n int64, st *stamps, lead int) error {
	if !k.checked {
		return k.echo(n, st, lead)
	}
	for range n {
		if err := k.await(); err != nil {
			return err
		}
		if err := k.send(lead); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}

// verbsSend is one side of the ping-pong with send operations.
type verbsSend struct {
	*verbsSide
	seq int64 // number of the last message awaited
}

func newVerbsSend(s *verbsSide) *verbsSend { return &verbsSend{verbsSide: s} }

func (k *verbsSend) await() error {
	k.seq++
	for k.got < k.seq {
		if err := k.idle(); err != nil {
			return err
		}
	}
	return k.verify()
}

func (k *verbsSend) verify() error {
	if !k.p.Validate {
		return nil
	}
	return k.checkMessage(k.in.Bytes(), k.seq)
}

func (k *verbsSend) send(lead int) error {
	k.prepare(lead)
	return k.post(1, false)
}

func (k *verbsSend) prepare(lead int) {
	if k.p.Validate {
		fill(k.message(), k.seq+int64(lead))
	}
}

//go:noinline
func (k *verbsSend) echo(n int64, st *stamps, _ int) error {
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

// verbsWrite is one side of the ping-pong with RDMA writes. It detects a message by its last byte,
// which holds the message's number.
type verbsWrite struct {
	*verbsSide
	last lastByte
	end  *byte // the message's last byte
	seq  byte  // number of the last message awaited
}

func newVerbsWrite(s *verbsSide) *verbsWrite {
	k := &verbsWrite{verbsSide: s, last: newLastByte(s.in.Bytes(), s.p.Size())}
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

func (k *verbsWrite) await() error {
	k.seq++
	for !k.last.is(k.seq) {
		if err := k.idle(); err != nil {
			return err
		}
	}
	return k.verify()
}

// verify waits for the whole message: its last byte may arrive before others.
func (k *verbsWrite) verify() error {
	if !k.p.Validate {
		return nil
	}
	if err := awaitPattern(k.in.Bytes()[:k.p.Size()], k.seq, k.idle); err != nil {
		return fmt.Errorf("over %s: %w", k.name, err)
	}
	return nil
}

func (k *verbsWrite) send(lead int) error {
	k.prepare(lead)
	*k.end = k.seq + byte(lead)
	return k.post(1, false)
}

func (k *verbsWrite) prepare(lead int) {
	if k.p.Validate {
		fill(k.message(), int64(k.seq)+int64(lead))
	}
}

//go:noinline
func (k *verbsWrite) echo(n int64, st *stamps, lead int) error {
	last, end := k.last, k.end
	for range n {
		k.seq++
		for !last.is(k.seq) {
			if err := k.idle(); err != nil {
				return err
			}
		}
		*end = k.seq + byte(lead)
		if err := k.post(1, false); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}
