//go:build linux

package test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// roleMeet meets another process over and over, both at the same moment: a line
// with the number of the round and one with a time start each meeting.
func roleMeet(p *parent) {
	n := must(newNode(ucp.ThreadSingle, patience))
	var id uint32
	check(scanLine(p.hear(), &id))
	for round := uint64(0); p.hear() == "round"; round++ {
		if round%2 == 0 && round > 0 { // else a known worker comes back
			check(n.w.Close())
			n.w = must(n.x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle}))
		}
		p.say(n.address())
		e := must(n.connect(p.hear()))
		p.say("ready")
		var at int64
		check(scanLine(p.hear(), &at))
		for time.Now().UnixNano() < at {
		}
		check(n.meet(e, id, round))
		p.say("met")
		p.hear()
		check(e.Close())
	}
	check(n.x.Close())
}

// meet sends some numbered messages and receives as many.
func (n *node) meet(e ucp.Endpoint, id uint32, round uint64) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience/2, errors.New("nobody came"))
	defer cancel()
	var sent []ucp.Request
	k := round%4 + 1
	for i := range k {
		p := make([]byte, sizes[(round+i)%uint64(len(sizes))])
		fill(p, id, round<<8|i)
		sent = append(sent, e.TagSend(p, tagStream))
	}
	buf := make([]byte, longest)
	for i := range k {
		m, err := n.w.TagRecv(buf, tagStream, allBits).Tie(e).Wait(ctx)
		if err != nil {
			return fmt.Errorf("round %d, message %d: %w", round, i, err)
		}
		sender, got, err := read(buf[:m.Len])
		if err != nil {
			return err
		}
		if sender == id || got != round<<8|i {
			return fmt.Errorf("from %d: %w", sender, &orderError{got, round<<8 | i})
		}
	}
	return ucp.WaitAll(ctx, sent, nil)
}

// TestMeet: two processes that connect to each other at the same moment get each
// other's messages, every time.
func TestMeet(t *testing.T) {
	for tls, rounds := range map[string]int{"all": 200, "self,rc": 50, "self,ud": 50} {
		t.Run(tls, func(t *testing.T) {
			t.Setenv(tlsEnv, tls)
			meetAtOnce(t, rounds)
		})
	}
}

func meetAtOnce(t *testing.T, rounds int) {
	ps := [2]*process{start(t, "meet"), start(t, "meet")}
	for i, p := range ps {
		p.say(i + 1)
	}
	both := func(each func(p, other *process)) {
		each(ps[0], ps[1])
		each(ps[1], ps[0])
	}
	var before [2]int
	for round := range rounds {
		both(func(p, _ *process) { p.say("round") })
		both(func(p, other *process) { other.say(p.hear()) })
		both(func(p, _ *process) { p.expect("ready") })
		if round == 3 {
			before = [2]int{descriptors(t, ps[0]), descriptors(t, ps[1])}
		}
		at := time.Now().Add(200 * time.Microsecond).UnixNano()
		both(func(p, _ *process) { p.say(at) })
		both(func(p, _ *process) { p.expect("met") })
		both(func(p, _ *process) { p.say("close") })
	}
	for i, p := range ps {
		// Ends of the last meetings may be under way.
		require.LessOrEqual(t, descriptors(t, p), before[i]+12, "descriptors of process %d, %d after 3 rounds", i, before[i])
		p.say("end")
	}
	both(func(p, _ *process) { p.ends() })
	requireNoTrace(t)
}

// TestConnectAndClose: whoever connects, sends and closes at once, loses
// nothing, and leaves nothing behind on either side.
func TestConnectAndClose(t *testing.T) {
	for name, mode := range map[string]ucp.ThreadMode{"single": ucp.ThreadSingle, "multi": ucp.ThreadMulti} {
		t.Run(name, func(t *testing.T) { connectAndClose(t, mode) })
	}
}

func connectAndClose(t *testing.T, mode ucp.ThreadMode) {
	before := takeCensus(t)
	s := open(t, mode)
	v, _ := startCollector(t, s)
	requireAlive(t, s, v, 1)
	waitApart(t, s, v.p)
	theirs := descriptorsAtRest(t, v.p)
	total := pushes
	for round := range 500 {
		e := s.dial(t, v.address)
		k := round % 5
		pusher(e, uint32(1000+round))(k) // dropped: Close waits for them
		if round%10 == 0 {
			p := make([]byte, longest)
			fill(p, uint32(1000+round), uint64(k))
			e.TagSend(p, tagStream)
			k++
		}
		require.NoError(t, e.Close())
		total += k
	}
	v.p.say(total)
	until(t, func() bool { return len(v.p.lines) > 0 }, s.w.Progress)
	v.p.expect(fmt.Sprint("collected ", total))
	waitApart(t, s, v.p)
	require.Eventually(t, func() bool { return descriptors(t, v.p) <= theirs }, patience, 10*time.Millisecond,
		"descriptors of the other process: %d before", theirs)
	require.NoError(t, s.x.Close())
	v.p.kill()
	requireBack(t, before)
}

// TestLeave: what a process sent before it closed everything and ended arrives,
// though this one took nothing in until then.
func TestLeave(t *testing.T) {
	for _, tls := range []string{"all", "self,rc", "self,ud"} {
		t.Run(tls, func(t *testing.T) {
			t.Setenv(tlsEnv, tls)
			leaves(t)
		})
	}
}

func leaves(t *testing.T) {
	for _, what := range []string{"leave, and nobody looked", "leave"} {
		t.Run(what, func(t *testing.T) {
			before := takeCensus(t)
			s := open(t, ucp.ThreadSingle)
			p := start(t, "peer")
			p.say(what)
			p.hear()
			p.say(s.address())
			p.say("go")
			if what != "leave" {
				p.ends()
			}
			buf, ctx := make([]byte, big), bounded(t)
			var k uint64
			for n := uint64(0); n == 0 || n < k; n++ {
				m, err := s.w.TagRecv(buf, tagStream, allBits).Wait(ctx)
				require.NoError(t, err)
				count, got, err := read(buf[:m.Len])
				require.NoError(t, err)
				require.Equal(t, n, got)
				k = uint64(count)
			}
			if what == "leave" {
				p.ends()
			}
			require.NoError(t, s.x.Close())
			requireBack(t, before)
			requireNoTrace(t)
		})
	}
}

// TestPeerComputes: who computes, and never progresses, has its memory written, read
// and added to by a peer that it had not met, and takes its messages.
func TestPeerComputes(t *testing.T) {
	for _, tls := range []string{"self,shm", "self,rc"} {
		t.Run(tls, func(t *testing.T) {
			t.Setenv(tlsEnv, tls)
			s, p, ctx := open(t, ucp.ThreadSingle), start(t, "peer"), bounded(t)
			p.say("compute")
			e := s.dial(t, p.hear())
			p.say(s.address())
			p.say("go")
			const n = 20
			for i := range uint64(n) {
				require.NoError(t, e.TagSendUint64(i, tagStream).Wait(ctx))
			}
			for i, key := range []string{p.hear(), p.hear()} { // of allocated memory, and of its own
				k, err := s.unpack(e, key)
				require.NoError(t, err)
				require.NoError(t, k.PutUint64(40, 8).Wait(ctx))
				if i == 0 || tls == "self,rc" { // over shm, its own memory's atomics are done by its worker
					at, err := ucp.AtomicAt[uint64](k, 8)
					require.NoError(t, err)
					old, err := at.FetchAdd(2).Wait(ctx)
					require.NoError(t, err)
					require.EqualValues(t, 40, old)
				}
				got := make([]byte, 1<<20)
				require.NoError(t, k.Get(got, 0).Wait(ctx))
				require.NoError(t, k.Put(got, 0).Wait(ctx))
			}
			require.NoError(t, e.Flush().Wait(ctx))
			p.say(n)
			p.expect("got them")
			p.ends()
		})
	}
}

// TestOrderlyClose: a peer that closes its worker is named, and so is the reason.
func TestOrderlyClose(t *testing.T) {
	for name, mode := range map[string]ucp.ThreadMode{"single": ucp.ThreadSingle, "multi": ucp.ThreadMulti} {
		t.Run(name, func(t *testing.T) {
			before := takeCensus(t)
			s := newSurvivor(t, mode, "close")
			s.peer.say("go")
			s.peer.expect("ready")
			s.connectBoth()
			rs := append(s.tied(s.e, 3), s.tied(s.twin, 3)...)
			require.NoError(t, s.e.TagSendUint64(1, tagPing).Wait(s.ctx))
			s.peer.expect("met")
			name := s.e.Info().Peer
			require.NotEmpty(t, name)
			s.peer.say("close")
			for _, err := range s.errorsOf(rs...)() {
				require.ErrorIs(t, err, ucp.ErrPeerFailed)
				require.ErrorContains(t, err, "closed")
				op := new(ucp.OpError)
				require.ErrorAs(t, err, &op)
				require.Equal(t, name, op.Peer)
			}
			s.peer.expect("closed")
			s.refuses(s.e)
			s.refuses(s.twin)
			are, must := s.calls()
			require.Equal(t, must, are, "calls of OnFailure")
			require.NoError(t, s.x.Close())
			s.peer.kill()
			requireBack(t, before)
		})
	}
}
