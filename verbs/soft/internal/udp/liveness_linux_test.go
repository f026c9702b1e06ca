package udp

import (
	"encoding/binary"
	"net/netip"
	"os/exec"
	"slices"
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
	f := newForger(t, w.LID())

	f.quote.Store(8)
	w.deaf.Store(true)
	s, _ := w.ask(patience)
	require.Equal(t, verbs.PeerUnknown, s, "the errors do not quote the probes")
	require.NotZero(t, f.sent.Load())

	f.quote.Store(1 << 16)
	w.deaf.Store(false)
	before := f.sent.Load()
	s, _ = w.ask(patience)
	require.Equal(t, verbs.PeerUnknown, s, "the peer replies")
	require.NotEqual(t, before, f.sent.Load())

	w.deaf.Store(true)
	s, _ = w.ask(time.Minute)
	require.Equal(t, verbs.PeerPortClosed, s, "what is forged is as good as an error of the host")
}

// forger sends an ICMP error for each datagram that is sent to a port of this network namespace.
type forger struct {
	quote atomic.Int32 // bytes of the datagram that the errors quote, behind the IP header
	sent  atomic.Int32
}

func newForger(t *testing.T, port uint16) *forger {
	in, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	require.NoError(t, err)
	out, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	require.NoError(t, err)
	require.NoError(t, unix.SetsockoptTimeval(in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 10_000}))
	f := new(forger)
	var ended sync.WaitGroup
	var stop atomic.Bool
	ended.Go(func() {
		b := make([]byte, 1<<16)
		for !stop.Load() {
			n, _, err := unix.Recvfrom(in, b, 0)
			if err != nil || n < 28 || binary.BigEndian.Uint16(b[22:]) != port {
				continue
			}
			m := slices.Concat([]byte{3, 3, 0, 0, 0, 0, 0, 0}, b[:min(n, 20+int(f.quote.Load()))])
			binary.BigEndian.PutUint16(m[2:], checksum(m))
			if unix.Sendto(out, m, 0, &unix.SockaddrInet4{Addr: [4]byte(b[12:16])}) == nil {
				f.sent.Add(1)
			}
		}
	})
	t.Cleanup(func() {
		stop.Store(true)
		ended.Wait()
		require.NoError(t, unix.Close(in))
		require.NoError(t, unix.Close(out))
	})
	return f
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i]) << 8
		if i+1 < len(b) {
			sum += uint32(b[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
