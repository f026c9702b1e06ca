package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
)

// TestRefusedSend: what the socket has no room for is kept, and goes later;
// nothing counts as lost. A full socket of another family stands in for the
// device's: it refuses as a full one does.
func TestRefusedSend(t *testing.T) {
	const n = 200_000
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpWrite, verbs.OpRead} {
		t.Run(op.String(), func(t *testing.T) {
			s := newScript(t, New(Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline}))
			for i := range s.a.buf {
				s.a.buf[i], s.b.buf[i] = byte(i), byte(i>>3)
			}
			s.b.recv(1, 0, n)
			who := s.a
			if op == verbs.OpRead { // the answers do not go
				who = s.b
			}
			q, port := who.qp.(*qp), who.device().udp
			fd, name, full := port.FD, q.route.udp.SockaddrLen, fullSocket(t)
			if who == s.a {
				port.FD, q.route.udp.SockaddrLen = full, 0
			}
			s.post(verbs.SendWR{Op: op, Flags: verbs.SendSignaled, Remote: s.b.mr.Addr(), RKey: s.b.mr.RKey()}, n)
			if who == s.b {
				q.acquire() // the request waits
				for end := time.Now().Add(time.Minute); q.numDeferred.Load() == 0; s.pass() {
					require.True(t, time.Now().Before(end))
				}
				port.FD, q.route.udp.SockaddrLen = full, 0
				q.transmitAndRelease()
			}
			who.device().progress()
			require.NotZero(t, port.Counts[udp.TxAgain].Load())
			require.Zero(t, value(t, who.device(), "device.tx_packets"))
			port.FD, q.route.udp.SockaddrLen = fd, name
			s.until(s.a, 1)
			if op == verbs.OpSend {
				s.until(s.b, 1)
			}
			require.Equal(t, s.b.buf[:n], s.a.buf[:n])
			for _, e := range []*end{s.a, s.b} {
				require.Zero(t, value(t, e.device(), "device.retransmits"))
				require.Zero(t, value(t, e.device(), "device.out_of_sequence"))
			}
			sent, came := value(t, s.a.device(), "device.tx_packets"), value(t, s.b.device(), "device.rx_packets")
			require.Equal(t, came, sent, "what did not go does not count")
		})
	}
}

// TestDatagramTrain: a list of datagrams to one peer is one train, and one that is
// refused stays queued.
func TestDatagramTrain(t *testing.T) {
	a, b, way := datagrams(t, New(Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline}))
	defer func() { require.NoError(t, way.Close()) }()
	wrs := make([]verbs.SendWR, 10)
	for i := range wrs {
		wrs[i] = verbs.SendWR{ID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendInline | verbs.SendSignaled, InlineLen: 8, AH: way.ID(), QPN: b.qp.QPN(), QKey: testQKey}
		wrs[i].Inline[0] = byte(i)
		b.recv(uint64(i), i*48, 48)
	}
	port, to := a.device().udp, &way.(*ah).route.udp
	fd, name := port.FD, to.SockaddrLen
	port.FD, to.SockaddrLen = fullSocket(t), 0
	n, st := a.qp.PostSend(wrs)
	require.Equal(t, len(wrs), n, "%v", st)
	var wc [16]verbs.WC
	require.Zero(t, a.cq.Poll(wc[:]), "none has gone")
	port.FD, to.SockaddrLen = fd, name
	a.device().progress()
	require.Equal(t, len(wrs), a.cq.Poll(wc[:]))
	taken := 0
	for end := time.Now().Add(time.Minute); taken == 0; taken = b.device().progress() {
		require.True(t, time.Now().Before(end))
	}
	require.Equal(t, len(wrs), taken, "by one call")
	require.Equal(t, len(wrs), b.cq.Poll(wc[:]))
	for i, w := range wc[:len(wrs)] {
		require.Equal(t, []int{i, i}, []int{int(w.ID), int(b.buf[i*48+40])})
	}
}

// fullSocket is a socket that has no room.
func fullSocket(t *testing.T) int {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = unix.Close(p[0]), unix.Close(p[1]) })
	for end := time.Now().Add(time.Minute); unix.Send(p[0], make([]byte, 1024), unix.MSG_DONTWAIT) == nil; {
		require.True(t, time.Now().Before(end))
	}
	return p[0]
}
