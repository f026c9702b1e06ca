package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
)

// TestWindowLoss: a loss halves the window down to a floor, and each window that
// is acknowledged lets it grow by one packet, to what it was.
func TestWindowLoss(t *testing.T) {
	v := newWindow(90, 4096)
	for _, want := range []int{45, 22, 11, minWindow, minWindow} {
		v.halve()
		require.Equal(t, want, v.cur)
	}
	for want := minWindow; want < 90; want++ {
		require.Equal(t, want, v.cur)
		v.acked(want - 1)
		require.Equal(t, want, v.cur)
		v.acked(1)
	}
	require.Equal(t, 90, v.cur)
	v.acked(1000)
	require.Equal(t, 90, v.cur)
	small := newWindow(3, 4096)
	small.halve()
	require.Equal(t, 3, small.cur, "the floor is not above what is set")
}

// TestWindowDefault: what is set holds; else connections with long packets over UDP
// have what this host's sockets hold, and all others the usual window.
func TestWindowDefault(t *testing.T) {
	for _, c := range [][2]int{{0, 90}, {defaultBuffer, 90}, {4 * defaultBuffer, 90}, {6 * defaultBuffer, 135}, {8 << 20, 180}, {64 << 20, 180}} {
		require.Equal(t, c[1], windowOf(c[0]), "%d", c[0])
	}
	d := &device{}
	d.kind, d.udp = overUDP, &udp.Socket{UnprivRcvbuf: 8 << 20}
	require.Equal(t, []int{90, 180}, []int{d.window(4096), d.window(20480)})
	d.conf.Window = 100
	require.Equal(t, []int{100, 100}, []int{d.window(4096), d.window(20480)})
	require.Equal(t, 90, (&device{}).window(20480))
}

// TestWindowUnits: the window is by the memory that packets take at the receiver.
func TestWindowUnits(t *testing.T) {
	short, long := &wqe{n: 8}, &wqe{n: 1 << 20}
	for _, c := range []struct{ mtu, long, train, part int }{{20480, 18, 3, 9}, {4096, 90, 15, 33}, {2048, 180, 31, 65}, {1024, 360, 62, 127}, {256, 1440, 64, 131}} {
		v := newWindow(90, c.mtu)
		require.Equal(t, []int{c.long, 540, c.train, c.part}, []int{v.limit(long), v.limit(short), v.batch, v.part}, "%d", c.mtu)
	}
	one := newWindow(1, 4096)
	require.Equal(t, []int{1, 1}, []int{one.batch, one.part})
}

// TestWholeTrains: with part of a long message under way, what the window has room
// for waits until it is a whole train; with nothing under way, it goes.
func TestWholeTrains(t *testing.T) {
	q := &qp{}
	q.req.window = newWindow(45, 4096)
	w := &wqe{op: verbs.OpWrite, n: 1 << 20, numPSNs: 256}
	for _, c := range []struct {
		flying int
		sent   uint32
		fly    bool
	}{
		{0, 0, true},
		{28, 0, true},   // room for the first two and a train
		{29, 0, false},  // for less
		{30, 17, true},  // for the second train
		{31, 17, false}, // for less
		{44, 18, true},  // within a train
		{45, 18, false},
		{31, 242, true},  // the last train is shorter
		{32, 242, false}, // but must fit, too
	} {
		q.req.psn, q.req.una, q.req.sent = verbs.PSN(c.flying), 0, c.sent
		require.Equal(t, c.fly, q.windowAllows(w), "%+v", c)
	}
}

// TestGroups: half a window of trains is acknowledged at once; after a loss each
// train is, and the window never holds back what asks.
func TestGroups(t *testing.T) {
	v := newWindow(90, 4096)
	ends := func() (all []uint32) {
		for n := range uint32(100) {
			if v.endsAckGroup(n) {
				all = append(all, n)
			}
		}
		return all
	}
	require.Equal(t, []uint32{47, 92}, ends())
	v.halve()
	require.Equal(t, []uint32{17, 32, 47, 62, 77, 92}, ends())
	for most := 1; most < 300; most++ { // below 4 each train is a packet, and what fills the window asks
		for _, mtu := range []int{256, 1024, 4096, 20480} {
			v := newWindow(most, mtu)
			if open := v.limit(&wqe{n: 1 << 20}); open >= 4 {
				require.LessOrEqual(t, firstBatchPackets+v.batchesPerAck*v.batch, open, "%d of %d", most, mtu)
			}
		}
	}
}
