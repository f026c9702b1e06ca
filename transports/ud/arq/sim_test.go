package arq

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
)

// rough is a link with every fault.
func rough(loss float64) sim.Link {
	return sim.Link{
		Latency: 5 * time.Microsecond, Jitter: 300 * time.Microsecond,
		Loss: loss, Duplicate: 0.05, Reorder: 0.1,
	}
}

// traffic opens flows in both directions.
func (w *world) traffic(flows int, most int) {
	r := w.net.Rand()
	a, b := w.host(), w.host()
	for range flows {
		from, to := a, b
		if r.IntN(2) == 0 {
			from, to = b, a
		}
		n := uint64(r.IntN(most))
		w.net.At(w.net.Now().Add(time.Duration(r.IntN(300))*time.Microsecond), func(ucs.Time) { from.open(to, n) })
	}
}

// TestEverythingComesOnceAndInOrder: whatever the network does, soon, and no flow
// fails where up to a fifth is lost.
func TestEverythingComesOnceAndInOrder(t *testing.T) {
	for _, loss := range []float64{0, 0.001, 0.01, 0.05, 0.2} {
		t.Run(fmt.Sprint("loss ", loss), func(t *testing.T) {
			for seed := range seeds(50, 153) {
				w := newWorld(t, seed, rough(loss))
				w.traffic(1+int(seed%5), 1+int(seed*37%2000))
				w.net.RunUntil(sim.Start.Add(time.Millisecond))
				w.until(20 * time.Second)
				w.whole()
			}
		})
	}
}

// TestHalfLost: what comes is right; a flow may fail, and says so.
func TestHalfLost(t *testing.T) {
	done, failed := 0, 0
	for seed := range seeds(100) {
		w := newWorld(t, seed, rough(0.5))
		w.traffic(3, 200)
		w.net.RunUntil(sim.Start.Add(time.Millisecond))
		w.until(time.Hour)
		for _, h := range w.hosts {
			for _, f := range h.flows {
				d := w.arrived(h, f)
				require.LessOrEqual(t, d.next, f.pushed)
				if f.State() == Done {
					done++
					require.Equal(t, f.n, d.next, "seed %d", seed)
				} else {
					failed++
					require.Contains(t, []Reason{TimedOut, ResetByPeer}, f.Reason(), "seed %d", seed)
				}
			}
		}
	}
	require.Greater(t, done, 20*failed)
}

// TestBlackout: ten seconds without a packet, at any moment, and late duplicates
// of what came before.
func TestBlackout(t *testing.T) {
	for seed := range seeds(60) {
		l := rough(0.02)
		if seed%2 == 0 {
			l.Jitter = 20 * time.Second / time.Duration(1+seed%7)
			l.Reorder = 0.002
		}
		w := newWorld(t, seed, l)
		w.traffic(4, 3000)
		at := w.net.Now().Add(time.Duration(w.net.Rand().IntN(3000)) * time.Microsecond)
		w.net.Partition(addrs(w.hosts[:1]), addrs(w.hosts[1:]), at, at.Add(10*time.Second))
		w.net.RunUntil(sim.Start.Add(5 * time.Millisecond))
		w.until(3 * time.Minute)
		w.whole()
		for _, h := range w.hosts {
			require.Less(t, h.sent, 20_000, "seed %d: a storm", seed)
		}
	}
}

func addrs(hs []*host) (as []netip.AddrPort) {
	for _, h := range hs {
		as = append(as, h.at)
	}
	return as
}

// TestOneWay: where one direction is cut for good both sides learn it, in the
// configured time, and have asked with a few packets only.
func TestOneWay(t *testing.T) {
	for seed := range seeds(100) {
		w := newWorld(t, seed, rough(0.01))
		a, b := w.host(), w.host()
		f, g := a.open(b, 1<<40), b.open(a, 1<<40)
		w.until(time.Millisecond + time.Duration(seed%100)*100*time.Microsecond)
		w.net.SetLink(a.at, b.at, sim.Link{Loss: 1})
		was, cut := a.sent+b.sent, w.net.Now()
		w.until(2 * time.Minute)
		require.Equal(t, []Reason{TimedOut, TimedOut}, []Reason{f.Reason(), g.Reason()}, "seed %d", seed)
		require.Less(t, w.net.Now().Sub(cut), w.conf.PeerTimeout+3*time.Second, "seed %d", seed)
		require.Less(t, a.sent+b.sent-was, 2*(2*MaxWindow+80), "seed %d", seed)
		w.silent()
	}
}

// TestOneWayForAWhile: ten seconds without a packet in one direction, at any moment;
// in the other they go on.
func TestOneWayForAWhile(t *testing.T) {
	for seed := range seeds(40) {
		l := rough(0.02)
		w := newWorld(t, seed, l)
		w.traffic(4, 3000)
		from, to := w.hosts[seed%2].at, w.hosts[1-seed%2].at
		at := w.net.Now().Add(time.Duration(w.net.Rand().IntN(3000)) * time.Microsecond)
		w.net.At(at, func(ucs.Time) { w.net.SetLink(from, to, sim.Link{Loss: 1}) })
		w.net.At(at.Add(10*time.Second), func(ucs.Time) { w.net.SetLink(from, to, l) })
		w.net.RunUntil(sim.Start.Add(5 * time.Millisecond))
		w.until(3 * time.Minute)
		w.whole()
		for _, h := range w.hosts {
			require.Less(t, h.sent, 20_000, "seed %d: a storm", seed)
		}
	}
}

// silent waits until receivers have noticed that nobody sends.
func (w *world) silent() {
	w.net.RunUntil(w.net.Now().Add(2 * (w.conf.PeerTimeout + w.conf.KeepAlive)))
	for _, h := range w.hosts {
		require.Empty(w.t, h.ins, "seed %d: half-open flows", w.seed)
		require.Empty(w.t, h.slots, "seed %d: slots", w.seed)
	}
}

// TestRestart: a peer that is another one at the same address gets nothing that was
// meant for the first, and who talked to that learns it soon.
func TestRestart(t *testing.T) {
	reasons := map[Reason]int{}
	for seed := range seeds(150) {
		w := newWorld(t, seed, rough(0.01))
		a, b := w.host(), w.host()
		f := a.open(b, 1<<40)
		b.open(a, 1<<40)
		w.until(time.Duration(w.net.Rand().IntN(1000)) * time.Microsecond)
		b.restart()
		back := b.open(a, 100)
		at := w.net.Now()
		for f.State() < Done && w.net.Step() {
		}
		require.Equal(t, Failed, f.State(), "seed %d", seed)
		reasons[f.Reason()]++
		require.Less(t, w.net.Now().Sub(at), 5*time.Second, "seed %d: %v", seed, f.Reason())
		again := a.open(b, 100)
		w.until(time.Minute)
		require.Equal(t, Done, again.State(), "seed %d", seed)
		require.Equal(t, Done, back.State(), "seed %d", seed)
		require.Equal(t, delivered{next: 100, end: true}, w.arrived(a, again))
		w.silent()
	}
	require.Positive(t, reasons[ResetByPeer])
	require.Positive(t, reasons[Rejected])
}

// TestDeadPeer: a peer that is gone is noticed, also by who only waits or only
// listens.
func TestDeadPeer(t *testing.T) {
	for seed := range seeds(60) {
		w := newWorld(t, seed, rough(0))
		a, b := w.host(), w.host()
		f := a.openFor(b, seed%3*10)
		b.openFor(a, 5)
		w.net.RunUntil(w.net.Now().Add(time.Duration(seed) * time.Millisecond))
		b.dead, b.slots, b.ins = true, nil, nil
		w.until(3 * time.Minute)
		require.Equal(t, TimedOut, f.Reason(), "seed %d", seed)
		w.silent()
	}
}

// TestIdle: nothing fails and little is said while nothing is sent.
func TestIdle(t *testing.T) {
	w := newWorld(t, 1, rough(0))
	a, b := w.host(), w.host()
	f, g := a.openFor(b, 10), b.openFor(a, 10)
	w.net.RunUntil(w.net.Now().Add(time.Hour))
	require.Equal(t, []State{Open, Open}, []State{f.State(), g.State()})
	require.Less(t, a.sent+b.sent, 4*int(time.Hour/w.conf.KeepAlive)+100)
	f.closes, g.closes = true, true
	a.run()
	b.run()
	w.until(2 * time.Hour)
	w.whole()
}

// TestCompute: a receiver that computes for long is not overrun without bound, and
// gets everything in the end.
func TestCompute(t *testing.T) {
	for seed := range seeds(12) {
		w := newWorld(t, seed, rough(0.001))
		w.traffic(6, 5000)
		for i := range 20 {
			h := w.hosts[i%2]
			d := time.Duration(w.net.Rand().IntN(100)) * time.Millisecond
			w.net.At(w.net.Now().Add(time.Duration(w.net.Rand().IntN(50))*time.Millisecond), func(ucs.Time) { h.compute(d) })
		}
		w.net.RunUntil(sim.Start.Add(time.Millisecond))
		w.until(5 * time.Minute)
		w.whole()
		require.Less(t, w.hosts[0].over+w.hosts[1].over, 30_000, "seed %d", seed)
	}
}

// TestStopped: a process that was stopped for minutes does not take its clock's
// jump for a silent peer.
func TestStopped(t *testing.T) {
	for seed := range seeds(60, 378) {
		w := newWorld(t, seed, rough(0.001))
		a, b := w.host(), w.host()
		f, g := a.openFor(b, 20), b.openFor(a, 20)
		w.net.RunUntil(w.net.Now().Add(time.Duration(1+seed) * time.Millisecond))
		a.compute(25 * time.Second)
		w.net.RunUntil(w.net.Now().Add(80 * time.Second))
		b.compute(25 * time.Second)
		a.compute(24 * time.Second)
		w.net.RunUntil(w.net.Now().Add(80 * time.Second))
		require.Equal(t, []State{Open, Open}, []State{f.State(), g.State()}, "seed %d", seed)
		f.n, g.n, f.closes, g.closes = 500, 500, true, true
		a.run()
		b.run()
		w.until(10 * time.Minute)
		w.whole()
	}
}

// TestSilenceIsTime: a peer that does not answer has Silence and one question more,
// however late the ticks are. Only time in which the process was stopped does not count.
func TestSilenceIsTime(t *testing.T) {
	for _, late := range []time.Duration{0, 10 * time.Millisecond, 200 * time.Millisecond, 900 * time.Millisecond} {
		for _, stop := range []time.Duration{0, time.Hour} {
			c := Default
			s := NewSender(&c, 1)
			s.Start(0)
			now, ticks := ucs.Time(0), 0
			for ; s.State() == Opening; ticks++ {
				now = max(now, s.Deadline()).Add(late)
				if ticks == 10 {
					now = now.Add(stop)
				}
				s.Tick(now)
			}
			require.Equal(t, TimedOut, s.Reason())
			took := time.Duration(now) - stop
			require.Greater(t, took, c.PeerTimeout-late, "%v late, stopped %v", late, stop)
			require.Less(t, took, c.PeerTimeout+c.MaxRTO*5/4+2*late, "%v late, stopped %v", late, stop)
		}
	}
}

// TestWindowClosed: a receiver that takes nothing is asked now and then, however
// long that lasts, and nothing fails.
func TestWindowClosed(t *testing.T) {
	w := newWorld(t, 1, rough(0.01))
	a, b := w.host(), w.host()
	f := a.open(b, 2000)
	w.net.RunUntil(w.net.Now().Add(40 * time.Microsecond))
	b.window = 0
	w.net.RunUntil(w.net.Now().Add(time.Minute))
	require.Equal(t, Open, f.State())
	got, was := w.arrived(a, f).next, a.sent
	require.Less(t, got, uint64(2000))
	w.net.RunUntil(w.net.Now().Add(10 * time.Minute))
	require.Equal(t, got, w.arrived(a, f).next)
	require.Less(t, a.sent-was, 1000)
	b.window = MaxWindow
	for _, r := range b.ins {
		r.WindowGrew(b.window)
	}
	b.run()
	w.until(12 * time.Minute)
	w.whole()
}

// TestOvertaking: where packets overtake each other and none is lost, few go again
// once that is known, and the window stays open.
func TestOvertaking(t *testing.T) {
	for seed := range seeds(10) {
		w := newWorld(t, seed, sim.Link{Latency: 20 * time.Microsecond, Jitter: 40 * time.Microsecond, Reorder: 0.1})
		a, b := w.host(), w.host()
		f := a.open(b, 50_000)
		w.until(time.Minute)
		w.whole()
		require.Less(t, a.sent, 54_000, "seed %d", seed)
		require.Greater(t, f.cwnd, uint32(40), "seed %d", seed)
	}
}

// TestLossTakesLittle: with one packet of a thousand lost, little more than a
// thousandth goes again, and a stream takes at most twice as long.
func TestLossTakesLittle(t *testing.T) {
	took := map[float64]time.Duration{}
	for _, loss := range []float64{0, 0.001, 0.01} {
		w := newWorld(t, 5, sim.Link{Latency: 10 * time.Microsecond, Bandwidth: 5e9, Overhead: 1000, Loss: loss})
		a, b := w.host(), w.host()
		a.open(b, 100_000)
		w.until(5 * time.Minute)
		w.whole()
		took[loss] = w.net.Now().Sub(sim.Start)
		require.Less(t, float64(a.sent), 100_000*(1.01+2*loss))
	}
	t.Log(took)
	require.Less(t, took[0.001], 2*took[0])
	require.Less(t, took[0.01], 10*took[0])
}
