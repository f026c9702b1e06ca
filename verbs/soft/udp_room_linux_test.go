package soft

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestUDPNoRoom: behind a token bucket filter the socket takes a part of a call's
// packets. The others are sent later: none is lost, and none is sent twice.
func TestUDPNoRoom(t *testing.T) {
	if !inOwnNetwork(t, 9000, 0) {
		return
	}
	out, err := exec.Command("tc", strings.Fields("qdisc add dev lo root tbf rate 200mbit burst 16kb limit 64mb")...).CombinedOutput()
	require.NoError(t, err, "tc (of iproute2): %s", out)
	onOneCPU(t)
	for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead} {
		t.Run(op.String(), func(t *testing.T) { withoutRoom(t, op) })
	}
}

// onOneCPU has all threads of this process run on one processor: the filter sends
// from any, and packets of two processors overtake each other.
func onOneCPU(t *testing.T) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	var one unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &one))
	for i := 0; one.Count() > 1; i++ {
		one.Clear(i)
	}
	for _, th := range threads {
		id, err := strconv.Atoi(th.Name())
		require.NoError(t, err)
		if err := unix.SchedSetaffinity(id, &one); err != unix.ESRCH {
			require.NoError(t, err)
		}
	}
}

// withoutRoom sends 4 MB one way in messages of 1 MB, each packet as a datagram of its
// own.
func withoutRoom(t *testing.T, op verbs.Opcode) {
	const size, count, depth = 1 << 20, 4, 4
	c := Config{Link: LinkUDP, Addr: localhost, MTU: verbs.MTU1024, Window: 32}
	a, b := newEnd(t, New(c), verbs.RC, size), newEnd(t, New(c), verbs.RC, size)
	da, db := a.c.(*device), b.c.(*device)
	s := lossySetup()
	s.mtu, s.timeout, s.features = verbs.MTU1024, 20, 0
	require.NoError(t, connectRC(a.qp, b.qp, da, db, s))
	for _, d := range []*device{da, db} {
		d.udp.GSO.Store(false)
		require.NoError(t, unix.SetsockoptInt(d.udp.FD, unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<10))
	}
	until := ucs.Now().Add(time.Minute)
	wcs := make([]verbs.WC, depth)
	for posted, done := 0, 0; done < count; {
		require.True(t, ucs.Now().Before(until), "%d messages of %d", done, count)
		if posted < count && posted-done < depth {
			n, _ := a.qp.PostSend([]verbs.SendWR{{
				Op: op, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, size)}, Remote: b.mr.Addr(), RKey: b.mr.RKey(),
			}})
			posted += n
		}
		b.cq.Poll(wcs)
		for _, wc := range wcs[:a.cq.Poll(wcs)] {
			require.Equal(t, verbs.WCSuccess, wc.Status)
			done++
		}
	}
	for _, d := range []*device{da, db} {
		for _, name := range []string{"udp.tx_lost", "device.retransmits", "device.duplicates", "device.out_of_sequence"} {
			require.Zero(t, value(t, d, name), name)
		}
	}
	require.NotZero(t, value(t, da, "udp.tx_again")+value(t, db, "udp.tx_again"), "the socket always had room")
}
