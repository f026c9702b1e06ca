package rc

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// compute keeps a goroutine busy until the test ends.
func compute(t *testing.T) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for x := 0; !stop.Load(); {
			x++
		}
	})
	t.Cleanup(func() {
		stop.Store(true)
		wg.Wait()
	})
}

// TestReceiverComputes: a receiver that does not look takes more messages than its
// queue holds at once: the sender's queue drains. All arrive, in order.
func TestReceiverComputes(t *testing.T) {
	for _, procs := range []int{1, 2} {
		for _, link := range []struct {
			name string
			ps   nic.Providers
		}{{"inproc", inproc()}, {"udp", loopback}} {
			t.Run(fmt.Sprintf("%s/%d", link.name, procs), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				receiverComputes(t, Component(link.ps))
			})
		}
	}
}

func receiverComputes(t *testing.T, c uct.Component) {
	a, b := newEnd(t, c, 1), newEndWith(t, c, 2, settingsOf(t, "UCX_RC_RX_QUEUE_LEN=1024"))
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	until(t, func() bool { return to.AMUint64(1, 0, 0) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	compute(t)
	next := 1
	for round := range 2 {
		most := b.recvTarget + b.maxRetained - 5*b.refillSize // some buffers are free, or not posted yet
		require.Greater(t, most, 3*b.recvTarget/2)
		for n := 0; n < most; {
			until(t, func() bool { return to.AMUint64(1, uint64(next), 0) == ucs.OK }, a)
			n, next = n+1, next+1
		}
		require.NotEqual(t, ucs.NoResource, to.Flush(uct.FlushRemote, uct.Token(round+1)))
		until(t, func() bool { return a.sees(func() bool { return a.Slots[0].txQueue.head == a.Slots[0].txQueue.tail }) }, a)
		require.Less(t, len(b.got), next, "nobody has looked")
		until(t, func() bool { return len(b.got) == next }, a, b)
	}
	for i := range b.got {
		require.EqualValues(t, i, b.got[i].Header)
	}
	require.Empty(t, append(a.failures, b.failures...))
	to.Close()
}

// TestReceivesArePostedAgain: in place of what progress takes, at once.
func TestReceivesArePostedAgain(t *testing.T) {
	c := Component(inproc())
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	for n := range 3 * b.recvTarget {
		until(t, func() bool { return to.AMUint64(1, uint64(n), 0) == ucs.OK }, a, b)
		until(t, func() bool { return len(b.got) == n+1 }, a, b)
		b.inside(func() { require.Greater(t, b.postedRecvs, b.recvTarget-b.refillSize) })
	}
	to.Close()
}

// TestBudget: the layer above keeps no more of what nobody waits for than it said, the
// rest it has to take now; what it gives back last first is posted again.
func TestBudget(t *testing.T) {
	const budget, n = 64 << 10, 10_000
	c := Component(inproc())
	a := newEnd(t, c, 1)
	infos, _ := a.d.Ifaces()
	k := &keeper{}
	f, err := a.d.OpenIface(infos[0], uct.IfaceConfig{Handler: k, Worker: uct.UUID{2}, Resources: uct.Resources{MaxUnexpected: budget}})
	require.NoError(t, err)
	b := &end{iface: f.(*iface)}
	defer func() { require.NoError(t, f.Close()) }()
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	sent := uint64(0)
	until(t, func() bool {
		for sent < n && to.AMUint64(1, sent, sent) == ucs.OK {
			sent++
		}
		if len(k.kept) == budget/b.seg && k.next%3 == 0 {
			for i := len(k.kept) - 1; i >= 0; i-- {
				f.Release(k.kept[i:][:1])
			}
			k.kept = k.kept[:0]
		}
		return k.next == n
	}, a, b)
	require.Equal(t, budget/b.seg, k.most)
	require.NotZero(t, k.refused)
	require.Zero(t, k.wrong)
	f.Release(k.kept)
	require.True(t, b.sees(func() bool { return b.retained == 0 }))
	to.Close()
}

// keeper keeps every message that it may.
type keeper struct {
	end
	kept          []uint64
	most, refused int
	next, wrong   uint64
}

func (k *keeper) HandleAM(_ []byte, ds []uct.Desc) (kept uint64) {
	for i := range ds {
		if ds[i].Header != k.next {
			k.wrong++
		}
		k.next++
		if ds[i].Flags&uct.DescCanRetain == 0 {
			k.refused++
			continue
		}
		k.kept = append(k.kept, ds[i].Handle)
		kept |= 1 << i
	}
	k.most = max(k.most, len(k.kept))
	return kept
}
