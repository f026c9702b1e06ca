package udp

import (
	"net/netip"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Each answer in each state: what is not listed has no effect.
func TestInquiry(t *testing.T) {
	type on struct {
		state  inquiryState
		answer answer
	}
	effects := map[on]inquiryState{
		{inquiryOpen, answerPresent}:       inquiryPresent,
		{inquiryOpen, answerPortClosed}:    inquiryRefused,
		{inquiryOpen, answerQPClosed}:      inquiryRefused,
		{inquiryRefused, answerPresent}:    inquiryPresent,
		{inquiryRefused, answerPortClosed}: inquiryGone,
		{inquiryRefused, answerQPClosed}:   inquiryGone,
		{inquiryRefused, answerPacket}:     inquiryOpen,
		{inquiryPresent, answerPacket}:     inquiryOpen,
		{inquiryGone, answerPacket}:        inquiryOpen,
	}
	for s := range numInquiryStates {
		for a := range numAnswers {
			want := s
			if to, ok := effects[on{s, a}]; ok {
				want = to
			}
			q := inquiry{state: s}
			q.step(a, ucs.Time(probeInterval))
			assert.Equal(t, want, q.state, "state %d, answer %d", s, a)
		}
	}
}

// The second refusal counts only some time after the first one.
func TestRefusalsApart(t *testing.T) {
	var q inquiry
	first := ucs.Time(time.Hour)
	q.step(answerPortClosed, first)
	q.step(answerQPClosed, first.Add(probeInterval-1))
	require.Equal(t, inquiry{state: inquiryRefused, refusal: answerPortClosed, refusedAt: first}, q)
	q.step(answerPacket, first.Add(probeInterval))
	q.step(answerPortClosed, first.Add(probeInterval))
	require.Equal(t, inquiryRefused, q.state, "the peer has sent a packet between")
	q.step(answerQPClosed, first.Add(2*probeInterval))
	require.Equal(t, inquiryGone, q.state)
	require.Equal(t, answerQPClosed, q.refusal)
}

// A Read that no reply ends is ended by the test's timeout.
const testQPN = verbs.QPN(77)

// watched is a socket that has one queue pair and is read until the test ends, and a peer that
// probes that queue pair.
type watched struct {
	*Socket
	by      *Socket
	to      Peer
	present atomic.Bool
	deaf    atomic.Bool // what arrives is not read
	ended   sync.WaitGroup
	stop    atomic.Bool
}

func newWatched(t *testing.T, addr string) *watched {
	t.Helper()
	w := new(watched)
	var err error
	for _, u := range []**Socket{&w.Socket, &w.by} {
		*u, err = Open(netip.MustParseAddr(addr), 0, 0)
		if err != nil && addr == "::1" {
			t.Skipf("no IPv6 here: %v", err)
		}
		require.NoError(t, err)
		s := *u
		s.HasQP = func(n verbs.QPN) bool { return n == testQPN && w.present.Load() }
		w.ended.Go(func() {
			for !w.stop.Load() {
				if s != w.Socket || !w.deaf.Load() {
					s.Recv()
				}
				time.Sleep(100 * time.Microsecond)
			}
		})
	}
	w.present.Store(true)
	w.to, err = w.by.Peer(w.GID(), w.LID())
	require.NoError(t, err)
	t.Cleanup(func() {
		w.stop.Store(true)
		w.ended.Wait()
		require.NoError(t, w.by.Close())
		_ = w.Close()
	})
	return w
}

// ask asks until the state is known or the time is over.
func (w *watched) ask(d time.Duration) (s verbs.PeerState, after time.Duration) {
	began := time.Now()
	for s == verbs.PeerUnknown && after < d {
		s = w.by.PeerState(&w.to, testQPN, 0)
		time.Sleep(time.Millisecond)
		after = time.Since(began)
	}
	return s, after
}

// closePort ends the peer as its process would.
func (w *watched) closePort(t *testing.T) {
	w.deaf.Store(true)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) // not bound, so that the port is closed
	require.NoError(t, err)
	require.NoError(t, unix.Dup2(fd, w.FD))
	require.NoError(t, unix.Close(fd))
}

func TestUDPPeerState(t *testing.T) {
	for name, addr := range map[string]string{"IPv4": "127.0.0.1", "IPv6": "::1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t, addr)
			s, after := w.ask(time.Second)
			require.Equal(t, verbs.PeerUnknown, s, "it lives")
			require.LessOrEqual(t, w.by.Counts[TxProbes].Load(), uint64(after/probeInterval)+1)
			require.NotZero(t, w.Counts[RxProbes].Load())

			w.present.Store(false)
			s, after = w.ask(time.Minute)
			require.Equal(t, verbs.PeerQPClosed, s)
			require.GreaterOrEqual(t, after, probeInterval)
			require.Equal(t, verbs.PeerQPClosed, w.by.PeerState(&w.to, testQPN, 0), "it stays so")

			w.closePort(t)
			require.Equal(t, verbs.PeerUnknown, w.by.PeerState(&w.to, testQPN, ucs.Now()), "a packet has arrived since")
			s, after = w.ask(time.Minute)
			require.Equal(t, verbs.PeerPortClosed, s)
			require.GreaterOrEqual(t, after, probeInterval)
		})
	}
}

// A peer that reads nothing is not gone. Its socket takes the probes.
func TestPeerStopped(t *testing.T) {
	t.Parallel()
	w := newWatched(t, "127.0.0.1")
	w.deaf.Store(true)
	s, _ := w.ask(3 * time.Second)
	require.Equal(t, verbs.PeerUnknown, s)
	require.Greater(t, w.by.Counts[TxProbes].Load(), uint64(5), "the probes go on")
}

// Nothing is probed, and no socket is open, unless somebody asks.
func TestNobodyAsks(t *testing.T) {
	t.Parallel()
	w := newWatched(t, "127.0.0.1")
	w.deaf.Store(true)
	w.by.PeerState(&w.to, testQPN, 0)
	require.Eventually(t, func() bool {
		w.by.prober.mu.Lock()
		defer w.by.prober.mu.Unlock()
		return !w.by.prober.inquiries[probed{w.to.src, testQPN}].probing
	}, 20*time.Second, 10*time.Millisecond)
}

// A host that forges ICMP errors ends no connection to a live peer: neither one that guesses,
// nor one that sees each packet. It ends that to a peer which does not reply.
func TestForgedErrors(t *testing.T) {
	if !suitetest.InOwnNetwork(t) {
		return
	}
	out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput()
	require.NoError(t, err, "%s", out)
	const patience = 2 * time.Second
	w := newWatched(t, "127.0.0.1")
	f := suitetest.ForgeICMP(t, w.LID())

	f.Quote.Store(8)
	w.deaf.Store(true)
	s, _ := w.ask(patience)
	require.Equal(t, verbs.PeerUnknown, s, "the errors do not quote the probes")
	require.NotZero(t, f.Sent.Load())

	f.Quote.Store(1 << 16)
	w.deaf.Store(false)
	before := f.Sent.Load()
	s, _ = w.ask(patience)
	require.Equal(t, verbs.PeerUnknown, s, "the peer replies")
	require.NotEqual(t, before, f.Sent.Load())

	before = f.Sent.Load()
	acceptOnlyFrom(t, w.FD, w.by.LID())
	s, _ = w.ask(patience)
	require.Equal(t, verbs.PeerUnknown, s, "the peer replies to the data socket")
	require.NotEqual(t, before, f.Sent.Load())

	w.deaf.Store(true)
	s, _ = w.ask(time.Minute)
	require.Equal(t, verbs.PeerPortClosed, s, "what is forged is as good as an error of the host")
}

// acceptOnlyFrom lets a socket drop what other ports send, as a firewall would.
func acceptOnlyFrom(t *testing.T, fd int, port uint16) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 0}, // the source port begins the UDP header
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(port), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	require.NoError(t, unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}))
}
