package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// converse runs the programs of both hosts until nothing happens any more.
func converse(t testing.TB, seed uint64, closes bool, extra func(*fabric)) *fabric {
	f := newFabric(t, seed)
	f.play(closes, extra)
	return f
}

func (f *fabric) play(closes bool, extra func(*fabric)) {
	n := f.rnd.IntN(30)
	for _, h := range f.hosts {
		if f.rnd.IntN(2) == 0 {
			h.newLink(h.peer) // an OPEN may arrive before its first use
		}
		f.after(f.delay(), func() {
			l := h.use()
			l.wants++
			l.urge()
			h.program(n, closes)
		})
	}
	f.after(100*time.Millisecond, f.settle)
	if extra != nil {
		extra(f)
	}
	f.run(200_000)
}

func (f *fabric) settle() {
	for _, h := range f.hosts {
		h.settle()
	}
}

// peerOf finds the other side of a connection.
func (f *fabric) peerOf(l *link) *link {
	for _, o := range f.all {
		if o.m.Conn() == l.m.Remote() && o.m.Remote() == l.m.Conn() {
			return o
		}
	}
	return nil
}

// arrived requires that all that was sent came, on every connection, and that
// only those failed in which nothing was sent.
func (f *fabric) arrived(seed uint64) {
	for _, l := range f.all {
		if l.failed != 0 {
			require.Contains(f.t, []Reason{ReasonStale, ReasonPeerLost}, l.failed, "seed %d\n%s", seed, f.tail())
			require.Zero(f.t, l.sent+l.got+l.wants, "seed %d: %x failed\n%s", seed, l.m.Conn()&0xffff, f.tail())
			continue
		}
		require.Zero(f.t, l.wants, "seed %d: %x\n%s", seed, l.m.Conn()&0xffff, f.tail())
		peer := f.peerOf(l)
		if l.m.State() == StateIdle {
			continue
		}
		require.NotNil(f.t, peer, "seed %d: %x %v\n%s", seed, l.m.Conn()&0xffff, l.m.State(), f.tail())
		require.Equal(f.t, l.sent, peer.got, "seed %d: %x\n%s", seed, l.m.Conn()&0xffff, f.tail())
	}
}

func eachFabric(t *testing.T, test func(t *testing.T, seed uint64)) {
	for seed := range uint64(seeds()) {
		if *oneSeed >= 0 {
			seed = uint64(*oneSeed)
		}
		test(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestQueuesCarryEverything: whichever side connects, migrates, suspends and resumes, and whenever,
// nothing is sent to a queue pair that cannot receive. All arrives once and in order, and in the end
// both sides of every connection agree.
func TestQueuesCarryEverything(t *testing.T) {
	eachFabric(t, func(t *testing.T, seed uint64) {
		f := converse(t, seed, false, nil)
		f.check(seed)
		f.arrived(seed)
		there := 0
		for _, l := range f.all {
			if l.failed != 0 {
				continue
			}
			if l.m.State() == StateIdle { // made before its first use, and all was sent by others
				require.Zero(t, l.sent+l.got+len(l.pairs), "seed %d\n%s", seed, f.tail())
				continue
			}
			there += len(l.pairs)
			peer := f.peerOf(l)
			require.Equal(t, StateOpen, l.m.State(), "seed %d\n%s", seed, f.tail())
			require.False(t, l.m.awaitsReply(), "seed %d\n%s", seed, f.tail())
			require.Equal(t, l.out, peer.in.Flip(), "seed %d\n%s", seed, f.tail())
			if l.out != None && peer.out != None {
				require.Equal(t, l.out, peer.out.Flip(), "seed %d\n%s", seed, f.tail())
			}
		}
		require.Equal(t, there, f.qps, "seed %d: none is left over", seed)
		f.sleep()
		f.check(seed)
		require.Zero(t, f.qps, "seed %d: all can sleep\n%s", seed, f.tail())
	})
}

// sleep suspends all connections.
func (f *fabric) sleep() {
	f.quiet = true
	for n := range 40 {
		for _, l := range f.all {
			f.after(time.Duration(n)*10*time.Millisecond+f.delay(), func() { l.step(Event{Kind: EventSuspend}) })
		}
	}
	f.run(200_000)
}

// TestQueuesClose: closed at every moment, also while it connects, a connection
// ends on both sides after what was sent before.
func TestQueuesClose(t *testing.T) {
	stale := 0
	eachFabric(t, func(t *testing.T, seed uint64) {
		f := converse(t, seed, true, func(f *fabric) {
			for _, at := range []time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second} {
				f.after(at, func() { // and those that were connected to after that
					for _, l := range f.all {
						l.end()
					}
				})
			}
		})
		f.check(seed)
		f.arrived(seed)
		stale += f.stale
		for _, l := range f.all {
			require.True(t, l.ended || l.failed != 0, "seed %d: %x is %v\n%s", seed, l.m.Conn()&0xffff, l.m.State(), f.tail())
		}
		require.Zero(t, f.qps, "seed %d", seed)
	})
	require.Positive(t, stale, "late opens make connections for nothing, where something waits")
}

// TestQueuesRestart: a worker dies at any moment, and mostly another one takes its
// place. Every connection with the dead one fails, those with the next one carry
// everything.
func TestQueuesRestart(t *testing.T) {
	eachFabric(t, func(t *testing.T, seed uint64) {
		var old [16]byte
		var again bool
		f := converse(t, seed, false, func(f *fabric) {
			old, again = f.hosts[0].id, f.rnd.IntN(4) != 0
			at := time.Duration(f.rnd.IntN(2000)) * time.Microsecond
			f.after(at, func() { f.hosts[0].dead = true })
			if !again {
				f.after(200*time.Millisecond, f.probe)
				return
			}
			at += f.delay()
			f.after(at, func() { f.restart(0); f.hosts[0].program(20, false) })
			f.after(at+f.delay(), func() {
				f.hosts[1].peer = f.hosts[0].id
				f.hosts[1].program(10, false)
			})
			f.after(200*time.Millisecond, f.probe)
		})
		f.check(seed)
		for _, l := range f.all {
			switch {
			case l.host.dead:
			case l.peer == old:
				require.NotZero(t, l.failed, "seed %d: %x is %v\n%s", seed, l.m.Conn()&0xffff, l.m.State(), f.tail())
			case l.failed != 0:
				require.Zero(t, l.sent+l.got+l.wants, "seed %d: %x failed\n%s", seed, l.m.Conn()&0xffff, f.tail())
			default:
				require.Equal(t, l.sent, f.peerOf(l).got, "seed %d: %x\n%s", seed, l.m.Conn()&0xffff, f.tail())
			}
		}
	})
}

// probe sends something by each connection.
func (f *fabric) probe() {
	for _, l := range f.all {
		if !l.over() && !l.m.Closing() {
			if l.m.State() == StateIdle {
				l.host.connect(l)
			}
			l.wants++
		}
	}
	f.settle()
}

// TestQueuesHaveFaults: the simulation sees what a transport must not do.
func TestQueuesHaveFaults(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(*fabric)
	}{
		{"given back at once", "is given back", func(f *fabric) { f.linger = 0 }},
		{"one step", "knows no other half", func(f *fabric) { f.twoStep = false }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(0); ; seed++ {
				require.Less(t, seed, uint64(100), "no fault is seen")
				f := newFabric(t, seed)
				c.spoil(f)
				l := f.hosts[0].open()
				l.wants++
				l.flush()
				f.after(5*time.Millisecond, func() { l.step(Event{Kind: EventMigrate}) })
				f.run(10_000)
				if len(f.faults) > 0 {
					require.Contains(t, f.faults[0], c.want)
					return
				}
			}
		})
	}
}
