package soft

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// pushed adds completions with the IDs from first on.
func pushed(c *cq, qpn verbs.QPN, first, n int) {
	for i := range n {
		c.push(&verbs.WC{ID: uint64(first + i), QPN: qpn}, false)
	}
}

// drained polls everything, few at a time.
func drained(t *testing.T, c *cq, few int) (ids []uint64) {
	t.Helper()
	wcs := make([]verbs.WC, few)
	for {
		n := c.Poll(wcs)
		require.GreaterOrEqual(t, n, 0)
		for _, w := range wcs[:n] {
			ids = append(ids, w.ID)
		}
		if n < few {
			return ids
		}
	}
}

func upTo(first, n int) (ids []uint64) {
	for i := range n {
		ids = append(ids, uint64(first+i))
	}
	return ids
}

func TestCreateCQRefuses(t *testing.T) {
	d := openTest(t, Config{Limits: Limits{CQs: 1, CQE: 100}})
	for _, depth := range []int{-1, 0, 101} {
		_, err := d.CreateCQ(verbs.CQConfig{Depth: depth})
		refused(t, err, ucs.ErrInvalid, "want 1 to 100")
	}
	testCQ(t, d, verbs.CQConfig{Depth: 100})
	_, err := d.CreateCQ(verbs.CQConfig{Depth: 100})
	refused(t, err, ucs.ErrNoResource, "limit")
}

// TestPushPoll: order through growth and wrap-around, whatever the batches.
func TestPushPoll(t *testing.T) {
	d := openTest(t, Config{})
	for _, tc := range []struct {
		name string
		c    verbs.CQConfig
	}{
		{"locks", verbs.CQConfig{Depth: 1000}},
		{"single", verbs.CQConfig{Depth: 1000, SingleThreaded: true}},
		{"not a power of two", verbs.CQConfig{Depth: 77}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := testCQ(t, d, tc.c)
			assert.Nil(t, c.ring.Load(), "an idle queue costs no ring")
			assert.Zero(t, c.Poll(nil))
			next := 0
			for _, n := range []int{1, 3, 5, 70, 2, 77, 9, 40} {
				pushed(c, 1, next, n)
				assert.Equal(t, upTo(next, n), drained(t, c, 1+n/3))
				next += n
			}
		})
	}
}

func TestPollBatch(t *testing.T) {
	d := openTest(t, Config{})
	c := testCQ(t, d, verbs.CQConfig{Depth: 16})
	pushed(c, 5, 0, 10)
	wcs := make([]verbs.WC, 4)
	assert.Equal(t, 4, c.Poll(wcs))
	assert.Equal(t, verbs.WC{ID: 3, QPN: 5}, wcs[3])
	assert.Equal(t, 4, c.Poll(wcs))
	assert.Equal(t, 2, c.Poll(wcs), "fewer: it is empty")
	assert.Zero(t, c.Poll(wcs))
}

func TestOverrun(t *testing.T) {
	d := openTest(t, Config{})
	c := testCQ(t, d, verbs.CQConfig{Depth: 12})
	pushed(c, 1, 0, 12)
	_, ok := d.TryAsync()
	assert.False(t, ok, "as deep as asked for")
	pushed(c, 1, 12, 3)
	e, ok := d.TryAsync()
	require.True(t, ok)
	assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: c}, e)
	_, ok = d.TryAsync()
	assert.False(t, ok, "one event")
	assert.Equal(t, -1, c.Poll(make([]verbs.WC, 1)))
	assert.Equal(t, -1, c.Poll(nil))
	pushed(c, 1, 15, 3)
	assert.Equal(t, -1, c.Poll(make([]verbs.WC, 1)))
	d.Ack(e)
}

// TestOverrunEndsQPs: who has to complete into a queue that overran fails.
func TestOverrunEndsQPs(t *testing.T) { overLinks(t, testOverrunEndsQPs) }

func testOverrunEndsQPs(t *testing.T, p *Provider) {
	a, b := newEnd(t, p, verbs.RC, 64), newEnd(t, p, verbs.RC, 64)
	small, err := a.c.CreateCQ(verbs.CQConfig{Depth: 2})
	require.NoError(t, err)
	q, err := a.pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: small, RecvCQ: a.cq, Caps: verbs.QPCaps{MaxSend: 16, MaxRecv: 16}})
	require.NoError(t, err)
	spare := a.qp
	a.qp = q
	a.connect(b)
	b.connect(a)
	a.recv(77, 0, 8)
	for i := range 6 {
		a.send(verbs.SendWR{
			ID: uint64(i), Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1,
			SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 8)}, Remote: b.mr.Addr(), RKey: b.mr.RKey(),
		})
	}
	w := a.completion(b) // the receive
	assert.Equal(t, uint64(77), w.ID)
	assert.Equal(t, verbs.WCFlushErr, w.Status)
	assert.Equal(t, verbs.StateErr, q.Query().State)
	assert.Equal(t, -1, small.Poll(make([]verbs.WC, 1)))
	for _, want := range []verbs.AsyncEvent{{Type: verbs.EventCQErr, CQ: small}, {Type: verbs.EventQPFatal, QP: q}} {
		e, ok := a.c.TryAsync()
		for ok && e.Type == verbs.EventCommEst {
			a.c.Ack(e)
			e, ok = a.c.TryAsync()
		}
		require.True(t, ok)
		assert.Equal(t, want, e)
		a.c.Ack(e)
	}
	_, ok := a.c.TryAsync()
	assert.False(t, ok)
	require.NoError(t, q.Close())
	require.NoError(t, small.Close())
	a.qp = spare
}

func TestIgnoreOverrun(t *testing.T) {
	d := openTest(t, Config{})
	c := testCQ(t, d, verbs.CQConfig{Depth: 3, IgnoreOverrun: true})
	pushed(c, 1, 0, 10)
	_, ok := d.TryAsync()
	assert.False(t, ok)
	assert.Equal(t, upTo(0, 3), drained(t, c, 10))
	pushed(c, 1, 20, 1)
	assert.Equal(t, upTo(20, 1), drained(t, c, 10))
}

func TestPurge(t *testing.T) {
	d := openTest(t, Config{})
	c := testCQ(t, d, verbs.CQConfig{Depth: 64})
	c.purge(1)
	pushed(c, 3, 0, 5) // so that it wraps
	drained(t, c, 64)
	for i := range 8 {
		pushed(c, verbs.QPN(i%3), i, 1)
	}
	c.purge(1)
	assert.Equal(t, []uint64{0, 2, 3, 5, 6}, drained(t, c, 2))
	c.purge(2)
	pushed(c, 1, 50, 2)
	assert.Equal(t, upTo(50, 2), drained(t, c, 8))
}

func TestResizeCQ(t *testing.T) {
	d := openTest(t, Config{Limits: Limits{CQE: 100}})
	c := testCQ(t, d, verbs.CQConfig{Depth: 4})
	pushed(c, 1, 0, 4)
	refused(t, c.Resize(3), ucs.ErrInvalid, "to 3: it holds 4")
	refused(t, c.Resize(101), ucs.ErrInvalid, "want 1 to 100")
	refused(t, c.Resize(0), ucs.ErrInvalid, "Depth 0")
	require.NoError(t, c.Resize(20))
	pushed(c, 1, 4, 16)
	assert.Equal(t, upTo(0, 20), drained(t, c, 7))
	require.NoError(t, c.Resize(2))
	pushed(c, 1, 0, 2)
	assert.Equal(t, upTo(0, 2), drained(t, c, 7))
	pushed(c, 1, 0, 3)
	e, ok := d.TryAsync()
	require.True(t, ok, "the new depth counts, not the ring's")
	d.Ack(e)
}

// TestPushPollRace: many pushers and pollers; each queue pair's completions come
// whole, once and in order.
func TestPushPollRace(t *testing.T) {
	const pushers, each = 4, 2000
	d := openTest(t, Config{})
	for _, tc := range []struct {
		name    string
		pollers int
		c       verbs.CQConfig
	}{
		{"one poller", 1, verbs.CQConfig{Depth: pushers * each}},
		{"two pollers", 2, verbs.CQConfig{Depth: pushers * each}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := testCQ(t, d, tc.c)
			var all sync.WaitGroup
			for q := range pushers {
				all.Go(func() { pushed(c, verbs.QPN(q), 0, each) })
			}
			var got atomic.Int64
			var seen [pushers][each]atomic.Int32
			for range tc.pollers {
				all.Go(func() {
					var wcs [7]verbs.WC
					var last [pushers]int64
					for got.Load() < pushers*each {
						n := c.pop(wcs[:])
						for _, w := range wcs[:n] {
							if int64(w.ID)+1 <= last[w.QPN] {
								t.Errorf("qp %d: %d after %d", w.QPN, w.ID, last[w.QPN]-1)
							}
							last[w.QPN] = int64(w.ID) + 1
							seen[w.QPN][w.ID].Add(1)
						}
						got.Add(int64(n))
						if n == 0 {
							spin(1000)
						}
					}
				})
			}
			all.Wait()
			for q := range seen {
				for i := range seen[q] {
					require.Equal(t, int32(1), seen[q][i].Load())
				}
			}
		})
	}
}

// TestPurgeRace: purging one queue pair's completions loses none of others.
func TestPurgeRace(t *testing.T) {
	const each = 3000
	d := openTest(t, Config{})
	c := testCQ(t, d, verbs.CQConfig{Depth: 2 * each})
	var all sync.WaitGroup
	all.Go(func() { pushed(c, 1, 0, each) })
	all.Go(func() { pushed(c, 2, 0, each) })
	all.Go(func() {
		for range 200 {
			c.purge(2)
		}
	})
	next := uint64(0)
	var wcs [5]verbs.WC
	for next < each {
		for _, w := range wcs[:c.pop(wcs[:])] {
			if w.QPN == 1 {
				require.Equal(t, next, w.ID)
				next++
			}
		}
	}
	all.Wait()
}

// TestSingleThreadedBesideEngine: who polls takes no lock, while an engine in
// another goroutine pushes.
func TestSingleThreadedBesideEngine(t *testing.T) {
	const n = 5000
	d := openTest(t, Config{Engine: EngineThread})
	c := testCQ(t, d, verbs.CQConfig{Depth: n, SingleThreaded: true})
	go pushed(c, 1, 0, n)
	var wcs [3]verbs.WC
	for next := uint64(0); next < n; {
		for _, w := range wcs[:c.pop(wcs[:])] {
			require.Equal(t, next, w.ID)
			next++
		}
	}
	assert.Zero(t, c.headLocks)
}

// TestQueueOfThreadDomain: so does who polls a queue that was made under a thread
// domain; one of a parent domain without does.
func TestQueueOfThreadDomain(t *testing.T) {
	d := openTest(t, Config{})
	p := testPD(t, d)
	own, err := d.AllocTD(verbs.TDConfig{})
	require.NoError(t, err)
	closeAtEnd(t, own)
	for _, tc := range []struct {
		td    verbs.TD
		locks uint64
	}{{own, 0}, {nil, 1}} {
		par, err := p.Parent(tc.td)
		require.NoError(t, err)
		closeAtEnd(t, par)
		c := testCQ(t, d, verbs.CQConfig{Depth: 10, Domain: par})
		pushed(c, 1, 0, 3)
		drained(t, c, 10)
		assert.Equal(t, tc.locks, c.headLocks)
		refused(t, par.Close(), ucs.ErrBusy, "1 objects")
	}
	_, err = d.CreateCQ(verbs.CQConfig{Depth: 1, Domain: p})
	refused(t, err, ucs.ErrInvalid, "no parent domain")
}

func TestCQAllocatesNothing(t *testing.T) {
	d := openTest(t, Config{})
	ch, err := d.CreateCompChannel()
	require.NoError(t, err)
	closeAtEnd(t, ch)
	c := testCQ(t, d, verbs.CQConfig{Depth: 64, Channel: ch})
	wcs := make([]verbs.WC, 64)
	w := verbs.WC{ID: 1}
	for range 64 {
		c.push(&w, false)
	}
	c.Poll(wcs)
	gate(t, func() {
		c.Arm(false)
		c.push(&w, false)
		c.push(&w, false)
		c.Poll(wcs)
		ch.TryEvent()
	})
}

func BenchmarkPushPoll(b *testing.B) {
	for _, tc := range []struct {
		name   string
		single bool
	}{{"locks", false}, {"single", true}} {
		b.Run(tc.name, func(b *testing.B) {
			d := openTest(b, Config{})
			c := testCQ(b, d, verbs.CQConfig{Depth: 64, SingleThreaded: tc.single})
			var wcs [4]verbs.WC
			w := verbs.WC{ID: 1}
			b.ReportAllocs()
			for b.Loop() {
				c.push(&w, false)
				c.pop(wcs[:])
			}
		})
	}
}
