package conn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
)

// peer is a connection of a test, and names its peer by a string.
type peer struct {
	uct.Endpoint
	Conn
	received   bool
	rejected   bool
	busy       bool
	sent       uint64
	suspension int
}

func (p *peer) HasReceived() bool { return p.received }
func (p *peer) Suspend()          { p.suspension++ }

// layer is the layer above.
type layer struct {
	uct.Handler
	failures []uct.Failure
	waits    map[uint32]uct.WaitKind
}

func (l *layer) HandleFailure(f uct.Failure) { l.failures = append(l.failures, f) }

func (l *layer) ReportWaits(_ uct.WaitKind, report func(uct.Endpoint, uint32, uct.WaitKind)) {
	for source, w := range l.waits {
		report(nil, source, w)
	}
}

type world struct {
	Table[string, *peer]
	layer
	stats  *stats.Set
	wakes  int
	active int
}

func newWorld(limit int) *world {
	w := &world{stats: stats.NewSet([]string{"other", "failed"})}
	w.Init(Hooks[*peer]{
		Handler: &w.layer, Stats: w.stats, Failed: 1, Limit: limit,
		Wake: func() { w.wakes++ }, Reject: func(p *peer) { p.rejected = true },
		Active: func() int { return w.active }, Uses: func(p *peer) (uint64, bool) { return p.sent, !p.busy },
	})
	return w
}

func (w *world) add(name string) *peer {
	p := new(peer)
	w.Insert(p, name)
	return p
}

func TestSlots(t *testing.T) {
	w := newWorld(0)
	a, b, c := w.add("a"), w.add("b"), w.add("b")
	require.Equal(t, []uint32{1, 2, 3}, []uint32{a.Source, b.Source, c.Source})
	require.Equal(t, []*peer{b, c}, w.ByPeer["b"])
	require.Equal(t, 3, w.Len())
	require.Equal(t, 3, w.NextSlot())

	w.Remove(b, "b")
	w.Remove(a, "a")
	require.Equal(t, []*peer{nil, nil, c}, w.Slots)
	require.Equal(t, map[string][]*peer{"b": {c}}, w.ByPeer)
	require.Equal(t, 1, w.Len())
	require.Nil(t, w.at(1))
	require.Nil(t, w.at(0))
	require.Nil(t, w.at(4))
	require.Equal(t, c, w.at(3))

	d := w.add("d")
	require.EqualValues(t, 1, d.Source, "the slot that was freed last")
	require.Equal(t, 0, d.Slot())
	require.Equal(t, 1, w.NextSlot())
	w.Clear()
	require.Empty(t, w.Slots)
}

func TestCounted(t *testing.T) {
	w := newWorld(0)
	a, b := w.add("a"), w.add("b")
	w.Activate()
	w.Count(a)
	w.Count(a)
	w.Count(b)
	require.Equal(t, 3, w.ActiveEndpoints())
	w.Uncount(a)
	w.Uncount(a)
	w.Deactivate()
	require.Equal(t, 1, w.ActiveEndpoints())
}

// A failure is recorded once, rejects operations, counts, and is served later.
func TestFailure(t *testing.T) {
	w := newWorld(0)
	a, b, c := w.add("a"), w.add("b"), w.add("c")
	a.Add(Opened)
	a.received, c.received = true, true
	lost := PeerFailed("lost")
	w.FailLater(a, lost)
	w.FailLater(a, ErrPeerClosed)
	w.FailLater(b, ErrPeerClosed)
	w.Disconnect(c.Source)
	w.Disconnect(77)
	require.True(t, a.rejected && b.rejected && c.rejected)
	require.Equal(t, []Life{Failing, Failing, Failing}, []Life{a.Life, b.Life, c.Life})
	require.Equal(t, []error{lost, ErrPeerClosed, ErrDisconnected}, []error{a.Err, b.Err, c.Err})
	require.Equal(t, []uint64{0, 2}, []uint64{w.stats.Value(0), w.stats.Value(1)}, "the close of a peer is no failure")
	require.Equal(t, 3, w.wakes)
	require.Empty(t, w.failures)

	n := w.Service(func(p *peer) int {
		if p == a {
			c.Life.Step(Release) // not served
			w.Schedule(b)        // waits already
		}
		return w.Report(p, true)
	})
	require.Equal(t, 1, n, "the layer above knows nothing of b")
	require.Equal(t, []uct.Failure{{Endpoint: a, RxConn: 1, Err: lost, NeverConnected: true}}, w.failures)
	require.Equal(t, []Life{Ended, Ended, Released}, []Life{a.Life, b.Life, c.Life})
}

// Service ends when no connection is scheduled, also by itself.
func TestServiceRepeats(t *testing.T) {
	w := newWorld(0)
	a := w.add("a")
	w.Schedule(a)
	left := 3
	require.Equal(t, 4, w.Service(func(p *peer) int {
		if left--; left >= 0 {
			w.Schedule(p)
		}
		return 1
	}))
	require.Zero(t, w.Service(nil))
}

// The end of the peer's messages is reported once, and not again with the end of the connection.
func TestRxEnd(t *testing.T) {
	w := newWorld(0)
	a, b := w.add("a"), w.add("b")
	a.received = true
	require.Equal(t, 1, w.ReportRxEnd(a))
	require.Zero(t, w.ReportRxEnd(a))
	require.Zero(t, w.ReportRxEnd(b), "nothing was received")
	w.Disconnect(a.Source)
	require.Equal(t, Open, a.Life, "nothing more is to come")
	require.Zero(t, w.Report(a, false))
	a.Add(Opened)
	w.Report(a, false)
	require.Equal(t, []uct.Failure{{RxConn: 1}, {Endpoint: a, Acked: true}}, w.failures)
	b.Add(Opened | Unacked)
	b.Fail(ErrPeerClosed)
	w.Report(b, false)
	require.Equal(t, uct.Failure{Endpoint: b}, w.failures[2])
}

func TestQueue(t *testing.T) {
	a, b := new(peer), new(peer)
	q := Queue[*peer]{Mark: Own}
	q.Add(a)
	q.Add(b)
	q.Add(a)
	require.Equal(t, 2, q.Len())
	var seen []*peer
	for p := range q.Drain() {
		seen = append(seen, p)
		q.Add(a)
	}
	require.Equal(t, []*peer{a, b}, seen)
	require.Equal(t, 1, q.Len())
}

func TestFacts(t *testing.T) {
	var f Facts
	require.True(t, f.Add(Opened|Counted))
	require.False(t, f.Add(Counted))
	require.True(t, f.Has(Opened|Counted))
	require.False(t, f.Has(Opened|Initiated))
	require.True(t, f.Drop(Opened))
	require.False(t, f.Drop(Opened))
	require.Equal(t, Counted, f)
}

func TestAdoptable(t *testing.T) {
	require.True(t, (&Conn{}).Adoptable())
	require.True(t, (&Conn{Life: HalfOpen}).Adoptable())
	for s := HungUp; s < numLives; s++ {
		require.False(t, (&Conn{Life: s}).Adoptable(), s)
	}
	require.False(t, (&Conn{Facts: Opened}).Adoptable())
	require.False(t, (&Conn{Facts: Initiated}).Adoptable())
}
