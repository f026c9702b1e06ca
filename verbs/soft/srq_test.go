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

func testSRQ(t testing.TB, p *pd, most int) *srq {
	t.Helper()
	s, err := p.CreateSRQ(verbs.SRQAttr{MaxWR: most, MaxSGE: 1})
	require.NoError(t, err)
	closeAtEnd(t, s)
	return s.(*srq)
}

func TestCreateSRQRefuses(t *testing.T) {
	d := openTest(t, Config{Limits: Limits{SRQs: 1, SRQWR: 100}})
	p := testPD(t, d)
	for _, tc := range []struct {
		a     verbs.SRQAttr
		names string
	}{
		{verbs.SRQAttr{}, "MaxWR 0, want 1 to 100"},
		{verbs.SRQAttr{MaxWR: 101}, "MaxWR 101"},
		{verbs.SRQAttr{MaxWR: 1, MaxSGE: 5}, "MaxSGE 5"},
		{verbs.SRQAttr{MaxWR: 1, Limit: 1}, "limit 1"},
	} {
		_, err := p.CreateSRQ(tc.a)
		refused(t, err, ucs.ErrInvalid, tc.names)
	}
	s := testSRQ(t, p, 100)
	assert.Equal(t, verbs.SRQAttr{MaxWR: 100, MaxSGE: verbs.MaxSGE}, s.Query())
	_, err := p.CreateSRQ(verbs.SRQAttr{MaxWR: 1})
	refused(t, err, ucs.ErrNoResource, "limit")
}

// TestSRQLimit: ten posted, limit 7; the fourth that is taken raises the event.
func TestSRQLimit(t *testing.T) {
	d := openTest(t, Config{})
	s := testSRQ(t, testPD(t, d), 10)
	n, st := s.PostRecv(recvs(0, 10))
	require.Equal(t, 10, n)
	require.Equal(t, ucs.OK, st)
	require.Equal(t, ucs.OK, s.SetLimit(7))
	assert.Equal(t, 7, s.Query().Limit)
	var w recvWQE
	for range 3 {
		require.True(t, s.pop(&w))
	}
	_, ok := d.TryAsync()
	assert.False(t, ok, "7 are left")
	require.True(t, s.pop(&w))
	e, ok := d.TryAsync()
	require.True(t, ok)
	assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, SRQ: s}, e)
	d.Ack(e)
	assert.Zero(t, s.Query().Limit)
	s.pop(&w)
	_, ok = d.TryAsync()
	assert.False(t, ok, "once")

	require.Equal(t, ucs.OK, s.SetLimit(6), "five are left")
	e, ok = d.TryAsync()
	require.True(t, ok, "at once")
	d.Ack(e)
	require.Equal(t, ucs.OK, s.SetLimit(5))
	require.Equal(t, ucs.OK, s.SetLimit(0))
	s.pop(&w)
	_, ok = d.TryAsync()
	assert.False(t, ok, "disarmed")
	assert.Equal(t, ucs.InvalidParam, s.SetLimit(11))
	assert.Equal(t, ucs.InvalidParam, s.SetLimit(-1))
}

func TestResizeSRQ(t *testing.T) {
	d := openTest(t, Config{Limits: Limits{SRQWR: 100}})
	s := testSRQ(t, testPD(t, d), 10)
	s.PostRecv(recvs(0, 10))
	refused(t, s.Resize(9), ucs.ErrInvalid, "to 9: 10 receives")
	refused(t, s.Resize(101), ucs.ErrInvalid, "101, want 1 to 100")
	assert.Equal(t, 10, s.Query().MaxWR, "a resize that fails changes nothing")
	require.NoError(t, s.Resize(20))
	n, st := s.PostRecv(recvs(10, 11))
	assert.Equal(t, 10, n)
	assert.Equal(t, ucs.NoResource, st)
	var w recvWQE
	for i := range 20 {
		require.True(t, s.pop(&w))
		require.Equal(t, uint64(i), w.id)
	}
	s.PostRecv(recvs(0, 5))
	require.Equal(t, ucs.OK, s.SetLimit(5))
	refused(t, s.Resize(4), ucs.ErrInvalid, "limit is 5")
	require.Equal(t, ucs.OK, s.SetLimit(0))
	require.NoError(t, s.Resize(5))
	n, _ = s.PostRecv(recvs(5, 1))
	assert.Zero(t, n)
}

// TestSRQLimitRace: each arming gives exactly one event, whoever takes.
func TestSRQLimitRace(t *testing.T) {
	const rounds, most = 200, 64
	d := openTest(t, Config{})
	s := testSRQ(t, testPD(t, d), most)
	for range rounds {
		s.PostRecv(recvs(0, most))
		require.Equal(t, ucs.OK, s.SetLimit(most/2))
		var taken atomic.Int32
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				var w recvWQE
				for s.pop(&w) {
					taken.Add(1)
				}
			})
		}
		all.Wait()
		require.Equal(t, int32(most), taken.Load())
		e, ok := d.TryAsync()
		require.True(t, ok)
		d.Ack(e)
		_, ok = d.TryAsync()
		require.False(t, ok)
	}
}

// TestSharedReceivesAreOfTheirQueuesDomain: not of the queue pair's.
func TestSharedReceivesAreOfTheirQueuesDomain(t *testing.T) {
	a, b := pair(t, New(Config{Link: LinkInproc, Engine: EngineInline}), 64)
	p := testPD(t, b.device())
	q, s, m := b.qp.(*qp), testSRQ(t, p, 4), testMR(t, p, 64, verbs.LocalWrite)
	q.srq, q.recvPD = s, p
	for id, sg := range []verbs.SGE{
		{Addr: m.Addr(), Len: 64, LKey: m.LKey()}, {Addr: m.Addr(), Len: 64, LKey: m.LKey()}, b.sge(0, 64),
	} {
		_, st := s.PostRecv([]verbs.RecvWR{{ID: uint64(id), NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{sg}}})
		require.Equal(t, ucs.OK, st)
	}
	for id := range uint64(3) {
		a.send(shortSend(id))
	}
	for _, want := range []verbs.WCStatus{verbs.WCSuccess, verbs.WCSuccess, verbs.WCLocProtErr} {
		require.Equal(t, want, b.completion(a).Status)
	}
}
