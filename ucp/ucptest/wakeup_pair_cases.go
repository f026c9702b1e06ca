package ucptest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

var wakeupPairCases = []Case{
	{"what arrives wakes a sleeper, however it was armed", wakeupPairs},
	{"newcomers wake a sleeper one after another", wakeupNewcomers},
}

// patientSettings make transports look after peers so seldom that a sleeper which
// misses what arrives is noticed.
var patientSettings = []string{
	"UCX_UD_TIMEOUT=60m", "UCX_UD_KEEPALIVE_INTERVAL=60m", "UCX_RC_TIMEOUT=1m", "UCX_RC_KEEPALIVE_INTERVAL=60m",
}

// deep is a context of workers that sleep at once and have nothing to do by time.
type deep struct {
	*Pair
	ctx *ucp.Context
}

func newDeep(p *Pair) deep {
	x, err := p.Factory.open(ucp.Config{CloseTimeout: 5 * time.Second}, patientSettings...)
	require.NoError(p.T, err)
	p.T.Cleanup(func() { require.NoError(p.T, x.Close()) })
	return deep{p, x}
}

func (d deep) worker(mode ucp.ThreadMode) *ucp.Worker {
	w, err := d.ctx.NewWorker(ucp.WorkerConfig{Mode: mode, Spin: time.Nanosecond})
	require.NoError(d.T, err)
	return w
}

// driven makes a worker that a goroutine drives. stop ends the goroutine and closes
// the worker.
func (d deep) driven() (w *ucp.Worker, stop func()) {
	w = d.worker(ucp.ThreadMulti)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	return w, func() {
		cancel()
		<-ended
		require.NoError(d.T, w.Close())
	}
}

// sleeps is one worker that goes to sleep, and its peer, which is driven.
type sleeps struct {
	deep
	w, peer *ucp.Worker
	to      ucp.Endpoint // the peer's, to w
	back    ucp.Endpoint // w's, to the peer
	wait    func(ucp.Request) error
}

// meet has peer, a driven worker, send to s.w, which receives it.
func (s *sleeps) meet(from *ucp.Worker) ucp.Endpoint {
	e := s.Connect(from, s.w)
	e.TagSendUint64(1, 9)
	_, err := s.w.TagRecv(make([]byte, 8), 9, exact).Wait(s.deadline)
	require.NoError(s.T, err)
	return e
}

// armings are the ways in which a worker comes to sleep. Each leaves in wait how it
// waits for what comes next.
var armings = []struct {
	name string
	arm  func(s *sleeps)
}{
	{"new", func(*sleeps) {}},
	{"looked around", func(s *sleeps) {
		for range 2000 {
			s.w.Progress()
		}
	}},
	{"met", func(s *sleeps) { s.to = s.meet(s.peer) }},
	{"left", func(s *sleeps) { // its only peer has gone, and it was roused by something else since
		peer, stop := s.driven()
		s.meet(peer)
		back := s.Connect(s.w, peer)
		tied := s.w.TagRecv(nil, 8, exact).Tie(back)
		back.TagSendUint64(1, 9)
		_, err := peer.TagRecv(make([]byte, 8), 9, exact).Wait(s.deadline)
		require.NoError(s.T, err)
		stop()
		_, err = tied.Wait(s.deadline)
		require.Error(s.T, err)
		require.NoError(s.T, back.Close())
		s.interrupted(3)
	}},
	{"interrupted", func(s *sleeps) {
		s.to = s.meet(s.peer)
		s.interrupted(3)
	}},
	{"by descriptor", func(s *sleeps) { s.wait = s.poll }},
	{"by descriptor, met", func(s *sleeps) {
		s.to = s.meet(s.peer)
		s.wait = s.poll
	}},
}

// interrupted has w sleep, be roused by the end of a context and make a pass, n times.
func (s *sleeps) interrupted(n int) {
	r := s.w.TagRecv(nil, 7, exact)
	for range n {
		ctx, cancel := context.WithTimeout(s.deadline, 2*time.Millisecond)
		_, err := r.Wait(ctx)
		cancel()
		require.ErrorIs(s.T, err, context.DeadlineExceeded)
		s.w.Progress()
	}
	r.Cancel()
	_, _ = r.Wait(s.deadline) // ErrCanceled
}

// poll waits as a program with a poll set of its own does.
func (s *sleeps) poll(r ucp.Request) error {
	fd, err := s.w.EventFD()
	if errors.Is(err, ucp.ErrUnsupported) {
		return r.Wait(s.deadline)
	}
	if err != nil {
		return err
	}
	set := shmem.NewPollSet(fd)
	for !r.Done() {
		if s.w.Progress() != 0 {
			continue
		}
		if err := s.w.Arm(); errors.Is(err, ucp.ErrBusy) {
			continue
		} else if err != nil {
			return err
		}
		asleep := ucs.Now()
		if n, err := set.Wait(1, sleepLimit); n == 0 && err == nil && ucs.Now().Sub(asleep) >= sleepLimit { // a signal ends it early
			return errors.New("not woken")
		}
	}
	return r.Err()
}

// sleepLimit is when a sleeper that was not woken is given up: far above what a
// machine under load takes, and far below what transports do by time.
const sleepLimit = 20 * time.Second

// arrivals are what a sleeper is woken by. begin posts, on the sleeper's goroutine,
// what it waits for; come has that end, with err.
type arrival struct {
	name  string
	begin func(s *sleeps) ucp.Request
	come  func(s *sleeps)
	err   error
}

var arrivals = []arrival{
	{"first contact", func(s *sleeps) ucp.Request { return s.w.TagRecv(make([]byte, 8), 1, exact).Request }, func(s *sleeps) {
		s.Connect(s.peer, s.w).TagSendUint64(1, 1)
	}, nil},
	{"message", func(s *sleeps) ucp.Request { return s.w.TagRecv(make([]byte, 8), 1, exact).Request }, func(s *sleeps) {
		if s.to == (ucp.Endpoint{}) {
			s.to = s.Connect(s.peer, s.w)
		}
		s.to.TagSendUint64(1, 1)
	}, nil},
	{"long message", func(s *sleeps) ucp.Request { return s.w.TagRecv(make([]byte, 300_000), 1, exact).Request }, func(s *sleeps) {
		if s.to == (ucp.Endpoint{}) {
			s.to = s.Connect(s.peer, s.w)
		}
		s.to.TagSend(pattern(300_000, 1), 1)
	}, nil},
	{"answer", func(s *sleeps) ucp.Request {
		s.back = s.Connect(s.w, s.peer)
		return s.back.TagSendSync([]byte{1}, 1)
	}, func(s *sleeps) { s.peer.TagRecv(make([]byte, 1), 1, exact).Drop() }, nil},
	{"end of a flush", func(s *sleeps) ucp.Request {
		s.back = s.Connect(s.w, s.peer)
		s.back.TagSend(pattern(5000, 1), 1)
		return s.back.Flush()
	}, func(s *sleeps) { s.peer.TagRecv(make([]byte, 5000), 1, exact).Drop() }, nil},
	{"the peer's end", func(s *sleeps) ucp.Request {
		s.back = s.Connect(s.w, s.peer)
		s.back.TagSendUint64(1, 2)
		return s.w.TagRecv(nil, 6, exact).Tie(s.back).Request
	}, func(s *sleeps) {
		_, err := s.peer.TagRecv(make([]byte, 8), 2, exact).Wait(s.deadline)
		require.NoError(s.T, err)
		require.NoError(s.T, s.peer.Close())
	}, ucp.ErrPeerFailed},
}

// wakeupPairs tries every arrival with every arming, at once and after a while in
// which the sleeper is left alone.
func wakeupPairs(t *testing.T, p *Pair) {
	if p.Alone() {
		return // nothing arrives from outside
	}
	d := newDeep(p)
	for _, arming := range armings {
		for k := range arrivals {
			for _, after := range []time.Duration{0, 3 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s: %s, after %v", arming.name, arrivals[k].name, after), func(t *testing.T) {
					own := *p
					own.T = t
					s := &sleeps{deep: deep{&own, d.ctx}, w: d.worker(p.mode)}
					peer, stop := s.driven()
					s.peer, s.wait = peer, func(r ucp.Request) error { return r.Wait(p.deadline) }
					arming.arm(s)
					s.arrive(&arrivals[k], after)
					stop()
					require.NoError(t, s.w.Close())
				})
			}
		}
	}
}

// wakeupNewcomers has new workers send to one that sleeps, which replies to every second of
// them by a new endpoint. Some stay and some close.
func wakeupNewcomers(t *testing.T, p *Pair) {
	if p.Alone() {
		return // nothing arrives from outside
	}
	d := newDeep(p)
	s := &sleeps{deep: d, w: d.worker(p.mode)}
	for i := range scaled(20) {
		peer, stop := s.driven()
		s.meet(peer)
		if i%2 == 1 {
			s.Connect(s.w, peer).TagSendUint64(2, 3)
			_, err := peer.TagRecv(make([]byte, 8), 3, exact).Wait(s.deadline)
			require.NoError(t, err, "answer to worker %d", i)
		}
		if i%3 == 0 {
			stop()
		} else {
			defer stop()
		}
	}
	require.NoError(t, s.w.Close())
}

// arrive has the sleeper wait for what arrives after a time.
func (s *sleeps) arrive(a *arrival, after time.Duration) {
	r := a.begin(s)
	ended := make(chan error, 1)
	go func() { ended <- s.wait(r) }()
	if after > 0 {
		time.Sleep(after) // no test of order: however long it takes, what arrives wakes
	}
	a.come(s)
	select {
	case err := <-ended:
		require.ErrorIs(s.T, err, a.err, "after %v", after)
	case <-time.After(sleepLimit):
		s.w.Signal() // so that the test ends
		<-ended
		s.T.Fatalf("after %v: the sleeper was not woken", after)
	}
}
