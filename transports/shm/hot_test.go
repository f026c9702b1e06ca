package shm

import (
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/uct"
)

// crowd is one iface with more connections than it polls in each pass. No scan
// makes up for what its hints lose.
type crowd struct {
	t  *testing.T
	to *iface
	r  recorder
	es []*ep // the senders' ends
}

func newCrowd(t *testing.T, n int) *crowd {
	c := &crowd{t: t}
	c.to = openTest(t, &c.r)
	for range n {
		c.join()
	}
	c.to.scanInterval = config.Forever
	return c
}

// join connects one more sender and gives its end.
func (c *crowd) join() *ep {
	f := openTest(c.t, new(recorder))
	e := connectTest(c.t, f, c.to)
	require.Equal(c.t, ucs.OK, e.AMShort(0, 0, nil))
	n := c.r.n
	until(c.t, func() bool { return c.r.n > n && e.peerPage != nil }, f, c.to)
	c.es = append(c.es, e)
	return e
}

// end is the receiver's end of e.
func (c *crowd) end(e *ep) *ep {
	i := slices.IndexFunc(c.to.Slots, func(s *ep) bool { return s != nil && s.peer == e.f.name })
	require.GreaterOrEqual(c.t, i, 0)
	return c.to.Slots[i]
}

// hot and cold give the senders' ends by whether the receiver polls them.
func (c *crowd) hot() []*ep {
	return slices.DeleteFunc(slices.Clone(c.es), func(e *ep) bool { return !c.end(e).hot })
}

func (c *crowd) cold() []*ep {
	return slices.DeleteFunc(slices.Clone(c.es), func(e *ep) bool { return c.end(e).hot })
}

// keepHot makes none of the hot connections stale.
func (c *crowd) keepHot() {
	for _, h := range c.to.hot {
		h.lastHit = c.to.passes()
	}
}

// serve is one look at sockets.
func (c *crowd) serve() {
	c.to.requestService()
	c.to.slowPass()
}

// TestColdConnectionIsHeardBesideBusyHotOnes: the polled connections never run
// dry, so that no pass is idle.
func TestColdConnectionIsHeardBesideBusyHotOnes(t *testing.T) {
	c := newCrowd(t, maxHot+1)
	for c.to.recheck.Len() > 0 || c.to.passes() != c.to.servedAt {
		c.to.Progress(64) // until none is polled because it was hot a moment ago, or by service
	}
	by := map[uint32]*ep{}
	for _, e := range c.hot() {
		by[c.end(e).Source] = e
		require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
	}
	heard := false
	c.r.onAM = func(d uct.Desc, _ []byte) {
		if e := by[d.RxConn]; e != nil {
			require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
		} else {
			heard = true
		}
	}
	require.Equal(t, ucs.OK, c.cold()[0].AMShort(2, 0, nil))
	for i := 0; !heard; i++ {
		require.Less(t, i, 2*maxHot, "starved")
		c.to.Progress(64)
	}
}

// TestColdConnectionIsHeardBesideABusyColdOne: both wait in the same inbox page.
func TestColdConnectionIsHeardBesideABusyColdOne(t *testing.T) {
	c := newCrowd(t, 2*maxHot)
	cold := c.cold()
	busy, quiet := cold[0], cold[len(cold)-1]
	from := c.end(busy).Source
	heard := false
	c.r.onAM = func(d uct.Desc, _ []byte) {
		if d.RxConn == from {
			require.Equal(t, ucs.OK, busy.AMShort(1, 0, nil))
		} else {
			heard = true
		}
	}
	c.keepHot()
	require.Equal(t, ucs.OK, busy.AMShort(1, 0, nil))
	require.Equal(t, ucs.OK, quiet.AMShort(2, 0, nil))
	for i := 0; !heard; i++ {
		require.Less(t, i, 4*maxHot, "starved")
		c.to.Progress(64)
	}
}

// TestBusyConnectionsHaveEqualTurns: of connections that always have messages, more than a pass polls, each gets about as
// many through as the others.
func TestBusyConnectionsHaveEqualTurns(t *testing.T) {
	c := newCrowd(t, 3*maxHot)
	by, got := map[uint32]*ep{}, map[uint32]int{}
	for _, e := range c.es {
		by[c.end(e).Source] = e
		for range drainBatch + 8 {
			require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
		}
	}
	c.r.onAM = func(d uct.Desc, _ []byte) {
		got[d.RxConn]++
		for e := by[d.RxConn]; e.AMShort(1, 0, nil) == ucs.OK; {
		}
	}
	for range 200 {
		c.keepHot()
		c.to.Progress(64)
	}
	require.Len(t, got, len(c.es))
	counts := slices.Sorted(maps.Values(got))
	require.GreaterOrEqual(t, 3*counts[0], 2*counts[len(counts)-1], "%v", counts)
	require.NotEmpty(t, c.cold())
}

// TestConnectionThatEndsWhileItCools: it loses its place among the hot ones and
// ends in the same look at sockets.
func TestConnectionThatEndsWhileItCools(t *testing.T) {
	c := newCrowd(t, maxHot+1)
	cold := c.cold()[0]
	victim := c.to.hot[0]
	c.to.left -= 2 * stalePasses
	require.Equal(t, ucs.OK, cold.AMShort(1, 0, nil))
	c.to.recheck.Add(c.end(cold))
	for _, e := range c.es {
		if c.end(e) == victim {
			e.Close()
		}
	}
	for i := 0; victim.Life != conn.Released; i++ {
		require.Less(t, i, 10)
		c.serve()
	}
	require.False(t, victim.hot)
	c.serve() // would look at memory that is not there any more
	require.NoError(t, c.r.failures[0].Err)
}

// TestHintsOfASlotsNextOwner: a number that the last owner left hides none.
func TestHintsOfASlotsNextOwner(t *testing.T) {
	c := newCrowd(t, maxHot+1)
	e := c.cold()[0]
	end := c.end(e)
	for range 5 {
		c.keepHot()
		n := c.r.n
		require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
		until(t, func() bool { return c.r.n > n }, c.to)
	}
	slot := end.Slot()
	left := e.tx.Head() ^ e.doorbellTag
	require.Equal(t, left, c.to.pages[0].doorbells[slot])
	e.Close()
	until(t, func() bool { return end.Life == conn.Released }, c.to, e.f)
	require.NoError(t, c.to.assignSlot(end)) // as the next connection does
	require.Equal(t, slot, end.Slot())
	require.NotEqual(t, left, c.to.pages[0].lastSeen[slot])
	require.Equal(t, c.to.pages[0].lastSeen[slot], c.to.pages[0].doorbells[slot])
	require.NoError(t, c.to.remove(end))
}

// TestCooledConnectionIsLookedAtForAWhile: its peer's store may become visible
// only after the first look.
func TestCooledConnectionIsLookedAtForAWhile(t *testing.T) {
	c := newCrowd(t, maxHot+1)
	e := c.hot()[0]
	end := c.end(e)
	c.to.demote(end)
	c.to.recheck.Add(end)
	c.serve()
	e.silently() // as one who still saw the ring watched
	n := c.r.n
	c.serve()
	require.Equal(t, n+1, c.r.n)
}

// TestRecheckListHoldsEachOnce however often it is hit.
func TestRecheckListHoldsEachOnce(t *testing.T) {
	c := newCrowd(t, 2)
	for range 100 {
		c.to.recheck.Add(c.to.Slots[0])
		c.to.recheck.Add(c.to.Slots[1])
	}
	require.Equal(t, 2, c.to.recheck.Len())
}

// silently sends a message without a hint, as one whose hint was lost.
func (e *ep) silently() {
	cell := e.tx.Cell()
	cell.SetHeader(0)
	cell.Publish(ring.First(e.tx.Head(), 0, 0))
	e.tx.Advance()
}

// TestScanFindsWhatHintsLost: all of it, in slices.
func TestScanFindsWhatHintsLost(t *testing.T) {
	const n = 2*scanSlots + 10
	var rb recorder
	a, b := openTest(t, new(recorder)), openTest(t, &rb)
	var es []*ep
	for range n {
		es = append(es, connectTest(t, a, b))
		require.Equal(t, ucs.OK, es[len(es)-1].AMShort(0, 0, nil))
	}
	until(t, func() bool { return rb.n == n }, a, b)
	for _, h := range b.hot {
		b.demote(h)
	}
	for range b.recheck.Drain() {
	}
	b.nextScanSlot = 0
	start := b.scanStart
	for range 3 {
		start = start.Add(b.scanInterval)
		for _, h := range b.hot {
			b.demote(h)
		}
		for _, e := range es {
			e.silently()
		}
		rb.n = 0
		for i := range scanSlices {
			k := rb.n
			b.scan(start.Add(time.Duration(i) * b.scanInterval / scanSlices))
			require.LessOrEqual(t, rb.n-k, scanSlots)
		}
		require.Equal(t, n, rb.n)
		require.Zero(t, b.scan(start.Add(b.scanInterval-1)))
	}
}

// TestNoHintIsLost: senders on goroutines of their own, more than are polled, in
// bursts, so that connections warm and cool all the time; without scans, each
// message has to be found by what its sender told.
func TestNoHintIsLost(t *testing.T) {
	const senders = 2*maxHot + 1
	bursts := 3000
	if testing.Short() {
		bursts = 300
	}
	for name, sleeps := range map[string]bool{"polling": false, "sleeping": true} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, senders)
			acked := make([]atomic.Uint64, len(c.to.Slots)+1)
			c.r.onAM = func(d uct.Desc, _ []byte) { acked[d.RxConn].Add(1) }
			var left atomic.Int64
			left.Store(senders)
			for i, e := range c.es {
				source := c.end(e).Source
				go func() {
					defer func() { left.Add(-1); _ = c.to.event.Signal() }()
					rnd := rand.New(rand.NewPCG(uint64(i), 3))
					sent := uint64(0)
					for range bursts {
						for range 1 + rnd.IntN(3) {
							if e.AMUint64(1, 0, 0) == ucs.OK {
								sent++
							}
						}
						// Each burst waits for the last one: one lost hint stops it.
						for k := 0; acked[source].Load() < sent && !t.Failed(); k++ {
							runtime.Gosched()
						}
						for range rnd.IntN(3000) {
							acked[0].Load() // some time apart
						}
					}
				}()
			}
			limit := ucs.Now().Add(patience)
			n := -1
			for i := 1; left.Load() > 0; i++ {
				if n != c.r.n {
					n, limit = c.r.n, ucs.Now().Add(patience)
				} else if i&1023 == 0 && !ucs.Now().Before(limit) {
					t.Fatal("a message is not found")
				}
				if c.to.Progress(64) == 0 && sleeps && c.to.Arm(uct.EventRecv) == ucs.OK && left.Load() > 0 {
					require.True(t, readable(t, c.to, patience), "a wake-up is lost")
				}
				if i&255 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
}
