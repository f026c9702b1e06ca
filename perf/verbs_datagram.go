package perf

import "go.uber.org/zap"

// verbsDatagram is the tests of datagrams, which may be lost. Each datagram carries its number as
// immediate data. In a ping-pong the other side replies with a number to each datagram, in a
// stream with the highest number received, now and then. The measuring side retransmits its last
// datagram after a time-out. The replying side retransmits when it receives a number again. Lost
// datagrams of a stream are counted and logged.
type verbsDatagram struct {
	*verbsSide
	scratch *stamps
	sent    uint32 // number of the last datagram sent
	seen    uint32 // highest number received
	end     uint32 // the passive side's last number of the phase
	quarter int32  // of the window: the interval of a stream's replies
	replies bool
	resend  bool // the last datagram is to be retransmitted
	lost    int64
}

func newVerbsDatagram(s *verbsSide) kernel {
	k := &verbsDatagram{verbsSide: s, scratch: newScratch(), quarter: int32(max(1, s.limit/4)), replies: s.link.g.Index() != 0}
	s.arrived = k.arrive
	s.stalled = func() { k.resend = k.resend || !k.replies }
	if k.replies && s.test.Pattern == Stream { // its replies are numbers alone
		s.list[0].Flags, s.list[0].InlineLen, s.list[0].NumSG = 0, 0, 0
	}
	return k
}

func (k *verbsDatagram) arrive(imm uint32) {
	switch d := int32(imm - k.seen); {
	case d > 0:
		k.seen = imm
		if k.replies {
			k.lost += int64(d - 1)
		}
	default:
		k.resend = k.replies
	}
}

// step is idle, and retransmits if necessary.
func (k *verbsDatagram) step() error {
	if err := k.idle(); err != nil {
		return err
	}
	if k.resend {
		return k.retransmit()
	}
	return nil
}

//go:noinline
func (k *verbsDatagram) retransmit() error {
	k.resend = false
	if k.sent == 0 {
		return nil
	}
	return k.one(k.sent)
}

func (k *verbsDatagram) progress() { _ = k.step() }

// one sends datagram number n.
func (k *verbsDatagram) one(n uint32) error {
	k.sent = n
	k.list[0].Imm = n
	return k.post(1, false)
}

// await waits until datagram number n or a later one has arrived.
func (k *verbsDatagram) await(n uint32) error {
	for int32(k.seen-n) < 0 {
		if err := k.step(); err != nil {
			return err
		}
	}
	return nil
}

func (k *verbsDatagram) active(n int64, st *stamps) error {
	if k.test.Pattern == Stream {
		if err := stream(k, n, st, k.link); err != nil {
			return err
		}
		return k.await(k.sent)
	}
	return k.echo(n, st, k.sent)
}

func (k *verbsDatagram) passive(n int64) error {
	k.end += uint32(n)
	if k.test.Pattern == Stream {
		return k.count()
	}
	return k.echo(n, k.scratch, k.sent)
}

// echo sends n datagrams and waits for as many. The replying side waits first.
//
//go:noinline
func (k *verbsDatagram) echo(n int64, st *stamps, seq uint32) error {
	for range n {
		seq++
		if k.replies {
			if err := k.await(seq); err != nil {
				return err
			}
		}
		if k.p.Validate {
			if err := k.verify(seq); err != nil {
				return err
			}
		}
		if err := k.one(seq); err != nil {
			return err
		}
		if !k.replies {
			if err := k.await(seq); err != nil {
				return err
			}
		}
		st.tick()
	}
	return nil
}

// verify validates the last datagram received, and writes the pattern of number seq, the next to
// be sent.
func (k *verbsDatagram) verify(seq uint32) error {
	if k.seen != 0 {
		if err := k.checkMessage(k.in.Bytes()[grhArea:], int64(k.seen)); err != nil {
			return err
		}
	}
	fill(k.message(), int64(seq))
	return nil
}

// count receives a stream, and sends acknowledgments at intervals.
//
//go:noinline
func (k *verbsDatagram) count() error {
	for k.seen != k.end {
		if err := k.step(); err != nil {
			return err
		}
		if int32(k.seen-k.sent) >= k.quarter {
			if err := k.one(k.seen); err != nil {
				return err
			}
		}
	}
	return k.one(k.end)
}

func (k *verbsDatagram) each(n int, st *stamps) error { return eachOf(k, n, st) }

//go:noinline
func (k *verbsDatagram) burst(n int) error {
	for n > 0 {
		c := min(n, len(k.list))
		n -= c
		if err := k.await(k.sent + uint32(c) - uint32(k.limit)); err != nil {
			return err
		}
		for i := range k.list[:c] {
			k.sent++
			k.list[i].Imm = k.sent
		}
		if err := k.post(c, n == 0); err != nil {
			return err
		}
	}
	return nil
}

func (k *verbsDatagram) close() error {
	if k.lost > 0 && k.log != nil {
		k.log.Warn("datagrams lost", zap.Int64("count", k.lost))
	}
	return k.verbsSide.close()
}
