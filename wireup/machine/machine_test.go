package machine

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// seeds is how many runs each property gets: all of them ack a minute.
func seeds() int {
	switch {
	case os.Getenv("GOUCX_TEST_LONG") != "":
		return 20000
	case testing.Short():
		return 500
	default:
		return 3000
	}
}

// simulate runs both programs until nothing happens any more.
func simulate(t testing.TB, seed uint64, lossy bool, extra func(*world)) *world {
	w := newWorld(t, seed, lossy)
	n := w.rnd.IntN(30)
	for _, s := range w.sides {
		w.after(w.delay(), func() { s.wants++; s.urge(); s.program(n) })
	}
	w.after(100*time.Millisecond, func() {
		for _, s := range w.sides {
			s.settle()
		}
	})
	if extra != nil {
		extra(w)
	}
	w.run(200_000)
	return w
}

func eachSeed(t *testing.T, test func(t *testing.T, seed uint64, lossy bool)) {
	for _, lossy := range []bool{false, true} {
		t.Run(fmt.Sprint("lossy ", lossy), func(t *testing.T) {
			for seed := range uint64(seeds()) {
				if *oneSeed >= 0 {
					seed = uint64(*oneSeed)
				}
				test(t, seed, lossy)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// TestEverythingComesOnceAndInOrder: whichever side connects, migrates, suspends and resumes, and
// whenever, both sides agree in the end and no message is lost.
func TestEverythingComesOnceAndInOrder(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, lossy bool) {
		w := simulate(t, seed, lossy, nil)
		a, b := w.sides[0], w.sides[1]
		for i, s := range w.sides {
			require.Equal(t, w.sides[1-i].sent, s.got, "seed %d: side %d\n%s", seed, i, w.tail())
			require.Zero(t, s.wants, "seed %d\n%s", seed, w.tail())
			require.Equal(t, StateOpen, s.m.State(), "seed %d\n%s", seed, w.tail())
			require.False(t, s.m.awaitsReply(), "seed %d\n%s", seed, w.tail())
		}
		require.Equal(t, a.out, b.in.Flip(), "seed %d\n%s", seed, w.tail())
		require.Equal(t, b.out, a.in.Flip(), "seed %d\n%s", seed, w.tail())
		if a.out != None && b.out != None {
			require.Equal(t, a.out, b.out.Flip(), "seed %d: one pair\n%s", seed, w.tail())
		}
	})
}

// TestTheSmallerInitiationStands where both connect and nothing else happens.
func TestTheSmallerInitiationStands(t *testing.T) {
	crossed := 0
	eachSeed(t, func(t *testing.T, seed uint64, lossy bool) {
		w := newWorld(t, seed, lossy)
		for _, s := range w.sides {
			w.after(w.delay(), func() { s.wants += 3; s.urge(); s.settle() })
		}
		w.run(10_000)
		a, b := w.sides[0], w.sides[1]
		if a.m.created+b.m.created == 2 {
			crossed++
			small := a
			if b.m.conf.Worker[0] < a.m.conf.Worker[0] {
				small = b
			}
			require.True(t, small.m.TxPair().IsLocal(), "seed %d\n%s", seed, w.tail())
			require.Equal(t, 1, a.retired, "seed %d\n%s", seed, w.tail())
			require.Equal(t, 1, b.retired)
		}
		require.True(t, a.m.Quiescent() && b.m.Quiescent(), "seed %d\n%s", seed, w.tail())
		require.Equal(t, a.out, b.out.Flip())
		require.Equal(t, 3, a.got)
		require.Equal(t, 3, b.got)
	})
	require.Positive(t, crossed)
}

// TestCloseAtEveryMoment: what was sent before arrives, and both sides close.
func TestCloseAtEveryMoment(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, lossy bool) {
		w := simulate(t, seed, lossy, func(w *world) {
			for _, s := range w.sides {
				at := time.Duration(w.rnd.IntN(1500)) * time.Microsecond
				w.after(at, func() { s.wants = 0; s.step(Event{Kind: EventClose}) })
			}
			w.after(time.Second, func() { // a side that was connected to after that
				for _, s := range w.sides {
					s.wants = 0
					s.step(Event{Kind: EventClose})
				}
			})
		})
		for i, s := range w.sides {
			peer := w.sides[1-i]
			if s.m.State() == StateIdle {
				require.Equal(t, StateIdle, peer.m.State())
				continue
			}
			require.Equal(t, peer.sent, s.got, "seed %d: side %d\n%s", seed, i, w.tail())
			require.True(t, s.ended, "seed %d: side %d is %v\n%s", seed, i, s.m.State(), w.tail())
		}
	})
}

// TestDeathAtEveryMoment: what came before it is in order, the survivor fails
// once, and nothing goes on.
func TestDeathAtEveryMoment(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64, lossy bool) {
		w := simulate(t, seed, lossy, func(w *world) {
			at := time.Duration(w.rnd.IntN(1000)) * time.Microsecond
			w.after(at, func() { w.sides[0].dead = true })
			w.after(at+w.delay(), func() {
				s := w.sides[1]
				s.wants = 0
				if s.m.State() != StateIdle {
					s.step(Event{Kind: EventPeerLost})
					require.True(t, s.failed)
				}
				s.dead = true
			})
		})
		require.LessOrEqual(t, w.sides[1].got, w.sides[0].sent)
		require.Zero(t, w.sides[1].m.Deadline())
	})
}

// TestSilentPeerIsLost: without a reply a machine fails when Limit is over, however
// late its ticks are, and after few more retransmissions where all are later. Time in
// which the process was stopped does not count.
func TestSilentPeerIsLost(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		late  time.Duration // every tick
		stop  time.Duration // one tick
		opens int           // after the first
		from  time.Duration // the time of the failure
		to    time.Duration
	}{
		{name: "on time", opens: 99, from: 100 * ms, to: 100 * ms},
		{name: "late", late: 9 * ms, opens: 9, from: 100 * ms, to: 110 * ms},
		{name: "few ticks", late: 99 * ms, opens: 3, from: 400 * ms, to: 400 * ms},
		{name: "stopped", stop: time.Hour, opens: 99, from: time.Hour + 100*ms, to: time.Hour + 100*ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(Config{Conn: 1, Timeout: ms, Limit: 100 * ms})
			m.Step(0, Event{Kind: EventConnect}, nil)
			opens, now := 0, ucs.Time(0)
			for ticks := 1; m.State() == StateOpening; ticks++ {
				now = m.Deadline().Add(c.late)
				if ticks == 50 {
					now = now.Add(c.stop)
				}
				for _, a := range m.Step(now, Event{Kind: EventTick}, nil) {
					if a.Kind == ActionSend {
						opens++
					}
				}
				require.Less(t, ticks, 1000)
			}
			require.Equal(t, StateFailed, m.State())
			require.Equal(t, c.opens, opens)
			require.GreaterOrEqual(t, time.Duration(now), c.from)
			require.LessOrEqual(t, time.Duration(now), c.to)
			require.Zero(t, m.Deadline())
		})
	}
}
