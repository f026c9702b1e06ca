package perf

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
)

// verbsSide is one side of a verbs test: a queue pair to the other side, or to itself within one
// process; one completion queue; memory that the other side accesses; and a list of work requests
// that is filled once.
type verbsSide struct {
	link *link
	p    *Params
	test Test
	log  *zap.Logger

	name string // the device, for errors
	ctx  verbs.Context
	td   verbs.TD // one goroutine uses the side, so it needs no locks
	base verbs.PD
	pd   verbs.PD // base under td
	cq   verbs.CQ
	qp   verbs.QP
	ah   verbs.AH // of datagrams
	in   verbs.MR // written and read by the other side
	out  verbs.MR // the message to send
	peer verbsHello

	list   []verbs.SendWR
	inline bool // the message is in the work request
	recvs  []verbs.RecvWR
	wcs    [64]verbs.WC

	limit    int64 // maximum number of outstanding work requests
	stride   int64 // number of work requests per requested completion
	posted   int64
	signaled int64 // the last one with a requested completion
	done     int64 // the last one that completed

	got         int64 // received messages
	recvsToPost int   // consumed receives that have not been posted again
	// arrived receives the immediate data of a datagram; nil: messages are counted. Neither may
	// post, because the batch of completions is still being processed.
	arrived func(imm uint32)
	// stalled is called when nothing has arrived for some time; may be nil.
	stalled func()

	spins       uint
	lastArrival ucs.Time // when something arrived last
	failed      error
}

// progress drives the device; the next wait reports its errors.
func (s *verbsSide) progress() { _ = s.idle() }

func (s *verbsSide) transports() string { return s.name }

// idle is one pass of a waiting loop; an error ends the wait.
func (s *verbsSide) idle() error {
	if n := s.cq.Poll(s.wcs[:]); n != 0 {
		return s.complete(n)
	}
	if s.spins++; s.spins%64 == 0 {
		return s.idleSlow()
	}
	return nil
}

// stallTime is how long a datagram test waits before it counts one as lost.
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
		case s.lastArrival == 0:
			s.lastArrival = now
		case now-s.lastArrival > stallTime:
			s.lastArrival = now
			s.stalled()
		}
	}
	return s.link.Err()
}

// complete processes the first n completions; a negative n means that the queue overran.
func (s *verbsSide) complete(n int) error {
	if n < 0 {
		s.failed = fmt.Errorf("%s: the completion queue overran", s.name)
	}
	s.lastArrival = 0
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
	if s.recvsToPost >= len(s.recvs) {
		s.recvsToPost -= len(s.recvs)
		s.replenish()
	}
	return s.failed
}

func (s *verbsSide) received(w *verbs.WC) {
	s.recvsToPost++
	if s.arrived == nil {
		s.got++
	} else {
		s.arrived(w.Imm)
	}
}

// fail stores the first error: the completions behind it are flushed.
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

// post posts the first n work requests of the list once there is room. last requests the
// completion of the last one; it is set for the end of a burst.
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
	w.Flags &^= verbs.SendSignaled // in a longer list it is not the last one
	return err
}

// postRest posts the rest after a post that was accepted only in part.
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

// drain waits until all posted work requests have completed. The last one has requested its
// completion.
func (s *verbsSide) drain() error {
	for s.done < s.posted {
		if err := s.idle(); err != nil {
			return err
		}
	}
	return nil
}

// message returns the memory of the message to send: in the work request, or out's.
func (s *verbsSide) message() []byte {
	n := s.p.Size()
	if s.inline {
		return s.list[0].Inline[:n]
	}
	return s.out.Bytes()[:n]
}

// checkMessage validates message seq at the start of in.
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
