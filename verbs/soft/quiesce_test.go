package soft

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// TestCloseWaits: a region's Close returns when nobody has the memory in hand any
// more, whoever that is.
func TestCloseWaits(t *testing.T) {
	sw := NewSwitch()
	d, peer := openTest(t, Config{Switch: sw, Engine: EngineInline}), openTest(t, Config{Switch: sw, Engine: EngineInline})
	p := testPD(t, d)
	c := testCQ(t, d, verbs.CQConfig{Depth: 10})
	v, err := p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c})
	require.NoError(t, err)
	closeAtEnd(t, v)
	q := v.(*qp)
	token := func(o *owner) (take, give func()) {
		return func() { require.True(t, o.tryAcquire()) }, func() { o.tryRelease() }
	}
	for _, tc := range []struct {
		name       string
		take, give func()
	}{
		{"owner", func() { q.acquire(); q.markMemoryUser() }, func() { q.tryRelease() }},
		{"owner a second time", func() { q.acquire(); q.markMemoryUser() }, func() { q.tryRelease() }},
		{"poster", func() { q.lockPosts(); q.tryRelease(); q.markMemoryUser() }, func() { q.unlockPosts() }},
		{name: "receive token"},
		{name: "receive token of a peer"},
		{name: "receive token of a thread domain"},
		{name: "receive token of a peer's thread domain"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			switch tc.name {
			case "receive token":
				tc.take, tc.give = token(&d.own.rx)
			case "receive token of a peer":
				tc.take, tc.give = token(&peer.own.rx)
			case "receive token of a thread domain":
				tc.take, tc.give = token(newThreadEnd(t, d, nil, verbs.RC, 64).qp.(*qp).e.token)
			case "receive token of a peer's thread domain":
				tc.take, tc.give = token(newThreadEnd(t, peer, nil, verbs.RC, 64).qp.(*qp).e.token)
			}
			m, err := p.Register(make([]byte, 8), verbs.MRConfig{})
			require.NoError(t, err)
			tc.take()
			var closed atomic.Bool
			var closer sync.WaitGroup
			closer.Go(func() {
				assert.NoError(t, m.Close())
				closed.Store(true)
			})
			for !m.(*mr).invalid.Load() {
				runtime.Gosched()
			}
			for range 1000 {
				runtime.Gosched()
			}
			assert.False(t, closed.Load(), "the memory is still in hand")
			tc.give()
			closer.Wait()
		})
	}
	assert.Empty(t, d.memoryUsers.list)
	q.markMemoryUser()
	assert.Len(t, d.memoryUsers.list, 1)
}

// TestLookersForgetTheClosed: those that are closed are in the list no more, the
// others each once.
func TestLookersForgetTheClosed(t *testing.T) {
	d := openTest(t, Config{})
	p, c := testPD(t, d), testCQ(t, d, verbs.CQConfig{Depth: 10})
	var qs []*qp
	for range 6 {
		v, err := p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c})
		require.NoError(t, err)
		closeAtEnd(t, v)
		qs = append(qs, v.(*qp))
		qs[len(qs)-1].markMemoryUser()
		qs[len(qs)-1].markMemoryUser()
	}
	for _, i := range []int{5, 0, 2} {
		require.NoError(t, qs[i].Close())
	}
	assert.ElementsMatch(t, []*qp{qs[1], qs[3], qs[4]}, d.memoryUsers.list)
	d.quiesce()
	assert.Empty(t, d.memoryUsers.list)
	qs[3].markMemoryUser()
	assert.Equal(t, []*qp{qs[3]}, d.memoryUsers.list)
}

// BenchmarkCloseMR registers and closes a region, beside queue pairs that rest.
func BenchmarkCloseMR(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := openTest(b, Config{})
			p := testPD(b, d)
			c := testCQ(b, d, verbs.CQConfig{Depth: 10})
			for range n {
				q, err := p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c})
				require.NoError(b, err)
				closeAtEnd(b, q)
			}
			buf := make([]byte, 64)
			b.ReportAllocs()
			for b.Loop() {
				m, err := p.Register(buf, verbs.MRConfig{})
				if err == nil {
					err = m.Close()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
