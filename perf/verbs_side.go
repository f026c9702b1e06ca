package perf

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
)

// verbsSide is one side of a verbs test: a queue pair to the other side, or to
// itself within one process, one completion queue, memory that the other side
// reaches, and a list of work requests that is filled once.
type verbsSide struct {
	link *link
	p    *Params
	test Test
	log  *zap.Logger

	name string // the device, for errors
	ctx  verbs.Context
	td   verbs.TD // one goroutine uses the side: nothing of it needs a lock
	base verbs.PD
	pd   verbs.PD // base under td
	cq   verbs.CQ
	qp   verbs.QP
	ah   verbs.AH // of datagrams
	in   verbs.MR // written and read by the other side
	out  verbs.MR // the message to send
	peer verbsHello

	list   []verbs.SendWR
	inline bool // the message stands in the work request
	recvs  []verbs.RecvWR
	wcs    [64]verbs.WC

	limit    int64 // work requests that have not ended
	stride   int64 // from one that asks for its completion to the next
	posted   int64
	signaled int64 // the last one that asked
	done     int64 // the last one that ended

	got  int64 // messages received
	owed int   // receives used and not posted again
	// arrived gets the immediate data of a datagram; nil: messages are counted.
	// Neither may post: the completions that come with it are being looked at.
	arrived func(imm uint32)
	// stalled is called when nothing has come for a while; nil: nobody.
	stalled func()

	spins  uint
	quiet  ucs.Time // since when nothing has come
	failed error
}

// progress drives the device; what goes wrong in it, the next wait tells.
func (s *verbsSide) progress() { _ = s.idle() }

// idle is a pass of a loop that waits; an error ends the waiting.
func (s *verbsSide) idle() error {
	if n := s.cq.Poll(s.wcs[:]); n != 0 {
		return s.complete(n)
	}
	if s.spins++; s.spins%64 == 0 {
		return s.idleSlow()
	}
	return nil
}

// stallTime is how long a test of datagrams waits before it takes one as lost.
const stallTime = ucs.Time(50e6)

//go:noinline
func (s *verbsSide) idleSlow() error {
	if s.spins%yieldSpins == 0 {
		cpu.Yield()
	}
	if s.failed != nil {
		return s.failed
	}
	if s.stalled != nil {
		switch now := ucs.Now(); {
		case s.quiet == 0:
			s.quiet = now
		case now-s.quiet > stallTime:
			s.quiet = now
			s.stalled()
		}
	}
	return s.link.Err()
}

// complete takes the first n completions; n below 0 says that the queue overran.
func (s *verbsSide) complete(n int) error {
	if n < 0 {
		s.failed = fmt.Errorf("%s: the completion queue overran", s.name)
	}
	s.quiet = 0
	for i := range max(n, 0) {
		switch w := &s.wcs[i]; {
		case w.Status != verbs.WCSuccess:
			s.fail(w)
		case w.Op != verbs.WCRecv:
			s.done = int64(w.ID)
		default:
			s.received(w)
		}
	}
	if s.owed >= len(s.recvs) {
		s.owed -= len(s.recvs)
		s.replenish()
	}
	return s.failed
}

func (s *verbsSide) received(w *verbs.WC) {
	s.owed++
	if s.arrived == nil {
		s.got++
	} else {
		s.arrived(w.Imm)
	}
}

// fail keeps the first reason: the completions behind it are flushed.
//
//go:noinline
func (s *verbsSide) fail(w *verbs.WC) {
	if s.failed == nil {
		s.failed = fmt.Errorf("%s: %v on qp %#06x: %v", s.name, w.Op, uint32(w.QPN), w.Status)
	}
}

// replenish posts a list of receives.
func (s *verbsSide) replenish() {
	if _, st := s.qp.PostRecv(s.recvs); st != ucs.OK && s.failed == nil {
		s.failed = fmt.Errorf("%s: post receives: %w", s.name, st.Err())
	}
}

// post posts the first n work requests of the list once there is room, the last
// one to be completed if all of a burst are posted by it.
func (s *verbsSide) post(n int, last bool) error {
	for s.posted+int64(n)-s.done > s.limit {
		if err := s.idle(); err != nil {
			return err
		}
	}
	s.posted += int64(n)
	w := &s.list[n-1]
	w.ID = uint64(s.posted)
	if last || s.posted-s.signaled >= s.stride {
		w.Flags |= verbs.SendSignaled
		s.signaled = s.posted
	}
	took, st := s.qp.PostSend(s.list[:n])
	var err error
	if took < n {
		err = s.postRest(s.list[took:n], st)
	}
	w.Flags &^= verbs.SendSignaled // in a longer list it does not stand last
	return err
}

// postRest goes on after a post that was not taken whole.
//
//go:noinline
func (s *verbsSide) postRest(wrs []verbs.SendWR, st ucs.Status) error {
	for {
		if st != ucs.NoResource {
			return fmt.Errorf("%s: post: %w", s.name, st.Err())
		}
		if err := s.idle(); err != nil {
			return err
		}
		var n int
		if n, st = s.qp.PostSend(wrs); n == len(wrs) {
			return nil
		}
		wrs = wrs[n:]
	}
}

// drain waits until all that was posted has ended. The last of it asked for its
// completion.
func (s *verbsSide) drain() error {
	for s.done < s.posted {
		if err := s.idle(); err != nil {
			return err
		}
	}
	return nil
}

// message is the memory of the message to send: in the work request, or out's.
func (s *verbsSide) message() []byte {
	n := s.p.Size()
	if s.inline {
		return s.list[0].Inline[:n]
	}
	return s.out.Bytes()[:n]
}

// checkMessage looks whether message seq, at the start of in, is as it was sent.
func (s *verbsSide) checkMessage(in []byte, seq int64) error {
	if at := check(in[:s.p.Size()], seq); at >= 0 {
		return fmt.Errorf("over %s: message %d is wrong at byte %d: %#x", s.name, seq, at, in[at])
	}
	return nil
}

func (s *verbsSide) validates() bool { return s.p.Validate }

func (s *verbsSide) close() error {
	var errs []error
	for _, o := range []interface{ Close() error }{s.qp, s.ah, s.in, s.out, s.cq, s.pd, s.base, s.td, s.ctx} {
		if o != nil {
			errs = append(errs, o.Close())
		}
	}
	return errors.Join(errs...)
}
