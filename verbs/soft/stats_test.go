package soft

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// value reads one of a device's counters.
func value(t testing.TB, d *device, name string) uint64 {
	t.Helper()
	for _, c := range d.Stats().Snapshot() {
		if c.Name == name {
			return c.Value
		}
	}
	t.Fatalf("no counter %q", name)
	return 0
}

func TestStats(t *testing.T) {
	d := openTest(t, Config{})
	p := testPD(t, d)
	c := testCQ(t, d, verbs.CQConfig{Depth: 100})
	s := testSRQ(t, p, 100)
	q, err := p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c, SRQ: s})
	require.NoError(t, err)

	s.PostRecv(recvs(0, 5))
	s.PostRecv(recvs(0, 3))
	assert.Equal(t, uint64(2), value(t, d, "device.posts"))
	assert.Equal(t, uint64(2), value(t, d, "device.doorbells"))
	assert.Equal(t, uint64(8), value(t, d, "device.wqes"))
	assert.Equal(t, uint64(2), value(t, d, "device.locks"))
	var w recvWQE
	s.pop(&w)
	pushed(c, 1, 0, 2)
	drained(t, c, 10)
	assert.Equal(t, uint64(2+1+2+1), value(t, d, "device.locks"))
	assert.Equal(t, uint64(2+1), value(t, d, "device.cq_locks"))

	for _, k := range []string{"pd", "cq", "srq", "qp"} {
		assert.Equal(t, uint64(1), value(t, d, "objects."+k), k)
	}
	assert.LessOrEqual(t, value(t, d, "bytes.qp"), uint64(4096), "an idle queue pair")
	assert.Equal(t, sizes[objects.CQ]+minCQE*sizeOf[verbs.WC](), value(t, d, "bytes.cq"))
	assert.Equal(t, sizes[objects.SRQ]+8*sizeOf[recvWQE](), value(t, d, "bytes.srq"))

	own := q.(*qp)
	own.sq.counts.post(5)
	own.sq.counts.post(2)
	assert.Equal(t, uint64(2+2), value(t, d, "device.posts"))
	assert.Equal(t, uint64(8+7), value(t, d, "device.wqes"))
	assert.Equal(t, uint64(6+2), value(t, d, "device.locks"))
	own.rq.init(10, false)
	own.rq.post(recvs(0, 4))
	before := d.Stats().Snapshot()
	own.counts.add(cntNaks, 3)
	assert.Equal(t, uint64(3), value(t, d, "device.naks"))
	require.NoError(t, q.Close())
	assert.Equal(t, uint64(3), value(t, d, "device.naks"), "they outlive the queue pair")
	for _, c := range before {
		if n := c.Name; n == "device.posts" || n == "device.wqes" || n == "device.doorbells" {
			assert.Equal(t, c.Value, value(t, d, n), n)
		}
	}
	assert.Zero(t, value(t, d, "objects.qp"))
	assert.Zero(t, value(t, d, "bytes.qp"))
}

// TestNoLocksCounted: what a single goroutine uses takes none.
func TestNoLocksCounted(t *testing.T) {
	d := openTest(t, Config{})
	c := testCQ(t, d, verbs.CQConfig{Depth: 10, SingleThreaded: true})
	pushed(c, 1, 0, 5)
	drained(t, c, 2)
	r := newRing(10, true, false)
	r.post(recvs(0, 3))
	var sum counts
	r.addTo(&sum)
	assert.Zero(t, sum[cntLocks])
	assert.Zero(t, c.headLocks)
	assert.Equal(t, uint64(5), value(t, d, "device.locks"), "the pushes'")
}

func TestCounterNames(t *testing.T) {
	for k, n := range counterNames {
		assert.NotEmpty(t, n, k)
	}
	assert.Equal(t, "rnr_naks", counterNames[cntRNRNaks])
	assert.Equal(t, "dropped_inbox", counterNames[cntDroppedInbox])
	assert.Equal(t, "locks", counterNames[cntLocks])
}

// TestIdleSizes: what costs nothing until it is used.
func TestIdleSizes(t *testing.T) {
	assert.LessOrEqual(t, sizeOf[cq](), uint64(512))
	assert.LessOrEqual(t, sizeOf[srq](), uint64(256))
	assert.LessOrEqual(t, sizeOf[recvRing](), uint64(128))
	assert.LessOrEqual(t, sizeOf[mr](), uint64(128))
	assert.Equal(t, uint64(80), sizeOf[recvWQE]())
}

// TestTrafficCounters: both ends count the same bytes and packets, over each link.
func TestTrafficCounters(t *testing.T) { overLinks(t, testTrafficCounters) }

func testTrafficCounters(t *testing.T, p *Provider) {
	a, b := pair(t, p, 100_000)
	from, to := a.c.(*device), b.c.(*device)
	for i, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead} {
		a.send(verbs.SendWR{
			ID: uint64(i), Op: op, Flags: verbs.SendSignaled, NumSG: 1,
			SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 10_000)}, Remote: b.mr.Addr(), RKey: b.mr.RKey(),
		})
		require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
	}
	assert.GreaterOrEqual(t, value(t, to, "device.rx_bytes"), uint64(10_000), "the write") // more: sent again
	assert.GreaterOrEqual(t, value(t, from, "device.rx_bytes"), uint64(10_000), "the read")
	assert.GreaterOrEqual(t, value(t, from, "device.tx_bytes"), uint64(10_000))
	assert.GreaterOrEqual(t, value(t, to, "device.tx_bytes"), uint64(10_000))
	assert.Equal(t, uint64(2), value(t, from, "device.posts"))
	assert.Equal(t, uint64(2), value(t, from, "device.doorbells"))
	assert.Equal(t, uint64(2), value(t, from, "device.wqes"))
	assert.Equal(t, uint64(1), value(t, from, "device.payload_fetches"), "the write's")
	assert.Equal(t, uint64(2), value(t, from, "device.cqes"))
	assert.Zero(t, value(t, to, "device.posts"))
}
