package soft

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestWindowKeys: the keys of a window keep its place, differ from one bind to the next, and
// are never 0; the place is another object's after Close, under another key.
func TestWindowKeys(t *testing.T) {
	d := openTest(t, Config{})
	p := testPD(t, d)
	v, err := p.AllocMW(verbs.MWType1)
	require.NoError(t, err)
	w := v.(*mw)
	key, seen := w.RKey(), map[uint32]bool{}
	for range 255 {
		require.False(t, seen[key])
		seen[key] = true
		require.Equal(t, d.mrs.index(w.RKey()), d.mrs.index(key))
		key = nextKey(key)
	}
	require.NotZero(t, nextKey(0xff), "key 0 is no key")
	require.NoError(t, w.Close())
	for range 64 {
		m := testMR(t, p, 8, verbs.LocalWrite)
		require.NotEqual(t, w.RKey(), m.RKey())
		require.NoError(t, m.Close())
	}
}

// TestWindowBindsInOrder: two queue pairs post binds of one window. The one that was posted second
// but is executed first fails, and so does the other way round no more.
func TestWindowBindsInOrder(t *testing.T) {
	d := openTest(t, Config{})
	p := testPD(t, d)
	m := testMR(t, p, 64, verbs.LocalWrite|verbs.BindMW)
	v, err := p.AllocMW(verbs.MWType1)
	require.NoError(t, err)
	w := v.(*mw)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	bindingOf := func(key uint32) *mr {
		e := &mr{d: d, key: key, bind: &binding{window: w}}
		require.NoError(t, e.covers(&verbs.MWBind{MR: m, Addr: m.Addr(), Len: 8}))
		return e
	}
	first, second := bindingOf(nextKey(w.RKey())), bindingOf(nextKey(nextKey(w.RKey())))
	require.False(t, d.mrs.bind(second))
	require.True(t, d.mrs.bind(first))
	require.True(t, d.mrs.bind(second))
	require.False(t, d.mrs.bind(first))
	require.Same(t, second, d.mrs.find(second.key))
	require.Nil(t, d.mrs.find(first.key))
	require.Equal(t, 1, m.windows)
	refused(t, m.Close(), ucs.ErrBusy, "windows")
	refused(t, verbs.Reregister(m, p, make([]byte, 8), verbs.MRConfig{}), ucs.ErrBusy, "windows")
	require.Same(t, m, d.mrs.find(m.key), "it is as it was")
}

// TestWindowRacesWithClose: a peer writes through a window while the window and then its region
// are closed. After that the memory keeps what the program puts there.
func TestWindowRacesWithClose(t *testing.T) { overLinks(t, testWindowRacesWithClose) }

func testWindowRacesWithClose(t *testing.T, p *Provider) {
	const size = 4096
	a, b := newEnd(t, p, verbs.UC, size), newEnd(t, p, verbs.UC, size) // refused writes end no unreliable connection
	a.connect(b)
	b.connect(a)
	var key atomic.Uint32
	var addr atomic.Uint64
	var posted, bound atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		var wc [16]verbs.WC
		wrs := make([]verbs.SendWR, 1)
		for !stop.Load() {
			wrs[0] = verbs.SendWR{
				Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, size)},
				Remote: addr.Load(), RKey: key.Load(),
			}
			a.qp.PostSend(wrs)
			a.cq.Poll(wc[:])
			for i := range max(b.cq.Poll(wc[:]), 0) {
				if wc[i].Op == verbs.WCBindMW && wc[i].Status == verbs.WCSuccess {
					bound.Add(1)
				}
			}
			posted.Add(1)
			runtime.Gosched()
		}
	})
	until := func(n *atomic.Int64, count int64) {
		for n.Load() < count {
			runtime.Gosched()
		}
	}
	ends(t, "closing windows", func() {
		for i := range int64(20) {
			buf := make([]byte, size)
			m, err := b.pd.Register(buf, verbs.MRConfig{Access: verbs.LocalWrite | verbs.BindMW})
			if !assert.NoError(t, err) {
				return
			}
			w, err := verbs.AllocMW(b.pd, verbs.MWType2)
			assert.NoError(t, err)
			c := verbs.MWBind{MR: m, Addr: m.Addr(), Len: size, Access: verbs.RemoteWrite}
			if !assert.NoError(t, verbs.BindWindow(b.qp, 1, verbs.SendSignaled, w, c)) {
				return
			}
			until(&bound, i+1)
			addr.Store(m.Addr())
			key.Store(w.RKey())
			until(&posted, posted.Load()+30)
			assert.NoError(t, w.Close())
			assert.NoError(t, m.Close())
			for k := range buf {
				buf[k] = poison
			}
			until(&posted, posted.Load()+10)
			assert.Equal(t, size, bytes.Count(buf, []byte{poison}), "the memory was touched after its Close")
		}
	})
	stop.Store(true)
	all.Wait()
}
