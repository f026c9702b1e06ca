package soft

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

const remoteAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

// TestAccess: all combinations of the bits that there are, and some that are
// not.
func TestAccess(t *testing.T) {
	p := testPD(t, openTest(t, Config{}))
	buf := make([]byte, 8)
	for a := verbs.Access(0); a <= remoteAccess; a++ {
		for _, more := range []verbs.Access{0, verbs.ZeroBased, verbs.BindMW, verbs.HugeTLB, verbs.RelaxedOrdering} {
			m, err := p.Register(buf, verbs.MRConfig{Access: a | more})
			if a&(verbs.RemoteWrite|verbs.RemoteAtomic) != 0 && a&verbs.LocalWrite == 0 {
				refused(t, err, ucs.ErrInvalid, "require LocalWrite")
				continue
			}
			require.NoError(t, err)
			require.NoError(t, m.Close())
		}
	}
	for _, a := range []verbs.Access{verbs.OnDemand, verbs.FlushGlobal, verbs.FlushPersistent} {
		_, err := p.Register(buf, verbs.MRConfig{Access: a})
		refused(t, err, ucs.ErrUnsupported, "access 0x")
	}
	_, err := p.Register(buf, verbs.MRConfig{Access: 1 << 30})
	refused(t, err, ucs.ErrInvalid, "access 0x40000000 is unknown")
}

func TestRegisterAddresses(t *testing.T) {
	p := testPD(t, openTest(t, Config{}))
	buf := make([]byte, 100)
	for _, tc := range []struct {
		name string
		c    verbs.MRConfig
		addr uint64
		bad  string
	}{
		{"own", verbs.MRConfig{}, addrOf(buf), ""},
		{"zero-based", verbs.MRConfig{Access: verbs.ZeroBased}, 0, ""},
		{"iova", verbs.MRConfig{IOVA: 0x1000, HasIOVA: true}, 0x1000, ""},
		{"iova 0", verbs.MRConfig{HasIOVA: true}, 0, ""},
		{"iova not given", verbs.MRConfig{IOVA: 0x1000}, addrOf(buf), ""},
		{"the last bytes", verbs.MRConfig{IOVA: ^uint64(0) - 99, HasIOVA: true}, ^uint64(0) - 99, ""},
		{"beyond", verbs.MRConfig{IOVA: ^uint64(0) - 98, HasIOVA: true}, 0, "beyond the last address"},
		{"both", verbs.MRConfig{IOVA: 8, HasIOVA: true, Access: verbs.ZeroBased}, 0, "zero-based at 0x8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := p.Register(buf, tc.c)
			if tc.bad != "" {
				refused(t, err, ucs.ErrInvalid, tc.bad)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.addr, m.Addr())
			assert.Equal(t, m.LKey(), m.RKey())
			assert.Same(t, &buf[0], &m.Bytes()[0])
			b, ok := p.d.remote(p, m.RKey(), tc.addr+99, 1, 0)
			require.True(t, ok)
			assert.Same(t, &buf[99], &b[0])
			require.NoError(t, m.Close())
			assert.Nil(t, m.(*mr).at(tc.addr, 1))
		})
	}
	_, err := p.Register(nil, verbs.MRConfig{})
	refused(t, err, ucs.ErrInvalid, "no bytes")
}

// TestRanges compares at with arithmetic that cannot overflow.
func TestRanges(t *testing.T) {
	p := testPD(t, openTest(t, Config{}))
	buf := make([]byte, 64)
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, base := range []uint64{0, 0x1000, ^uint64(0) - 63} {
		m, err := p.Register(buf, verbs.MRConfig{IOVA: base, HasIOVA: true})
		require.NoError(t, err)
		for range 20_000 {
			addr := base + rnd.Uint64N(80) - 8
			n := int(rnd.Uint64N(80)) - 4
			if rnd.Uint64N(10) == 0 {
				addr, n = rnd.Uint64(), int(rnd.Uint64())
			}
			off := addr - base // wraps where addr lies before
			inside := off <= 64 && n >= 0 && n <= 64 && int(off)+n <= 64
			b := m.(*mr).at(addr, n)
			require.Equal(t, inside, b != nil, "addr base+%d n %d", off, n)
			if inside {
				require.Len(t, b, n)
				require.Equal(t, n, cap(b), "nothing beyond the piece is reached")
			}
		}
		require.NoError(t, m.Close())
	}
}

func TestProtection(t *testing.T) {
	d := openTest(t, Config{})
	p, other := testPD(t, d), testPD(t, d)
	par, err := p.Parent(nil)
	require.NoError(t, err)
	closeAtEnd(t, par)
	m := testMR(t, p, 16, verbs.LocalWrite|verbs.RemoteRead)
	viaParent, err := par.Register(make([]byte, 16), verbs.MRConfig{})
	require.NoError(t, err)
	closeAtEnd(t, viaParent)

	for _, tc := range []struct {
		name string
		pd   *pd
		m    verbs.MR
		need verbs.Access
		ok   bool
	}{
		{"own", p, m, verbs.LocalWrite, true},
		{"both bits", p, m, verbs.LocalWrite | verbs.RemoteRead, true},
		{"parent domain", par.(*pd), m, verbs.LocalWrite, true},
		{"from a parent domain", p, viaParent, 0, true},
		{"other domain", other, m, 0, false},
		{"missing bit", p, m, verbs.RemoteWrite, false},
		{"one of two missing", p, m, verbs.LocalWrite | verbs.RemoteWrite, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, ok := d.local(tc.pd, verbs.SGE{Addr: tc.m.Addr(), Len: 16, LKey: tc.m.LKey()}, tc.need)
			assert.Equal(t, tc.ok, ok)
			_, ok = d.remote(tc.pd, tc.m.RKey(), tc.m.Addr(), 16, tc.need)
			assert.Equal(t, tc.ok, ok)
			_, ok = d.local(tc.pd, verbs.SGE{Addr: tc.m.Addr(), Len: 17, LKey: tc.m.LKey()}, tc.need)
			assert.False(t, ok, "beyond the end")
		})
	}
	assert.True(t, p.protection == par.(*pd).protection)
	assert.False(t, p.protection == other.protection)
	b, ok := d.local(other, verbs.SGE{LKey: 77}, verbs.LocalWrite)
	assert.True(t, ok && b != nil, "no bytes need no key")
	b, ok = d.remote(other, 77, 12, 0, verbs.RemoteWrite)
	assert.True(t, ok && b != nil, "no bytes need no key")
}

// TestKeysVary: keys are never 0, never those of another, and a stale one finds
// nothing, though its index is used again.
func TestKeysVary(t *testing.T) {
	d := openTest(t, Config{})
	p := testPD(t, d)
	buf := make([]byte, 8)
	seen := map[uint32]bool{}
	places := map[uint32]bool{}
	for range 255 { // at worst all in one place
		m, err := p.Register(buf, verbs.MRConfig{})
		require.NoError(t, err)
		k := m.RKey()
		require.NotZero(t, k)
		require.False(t, seen[k], "a key came back")
		seen[k], places[d.mrs.index(k)] = true, true
		require.NotNil(t, d.mrs.find(k))
		require.Nil(t, d.mrs.find(k^1), "another version")
		require.NoError(t, m.Close())
		require.NoError(t, m.Close())
		require.Nil(t, d.mrs.find(k))
	}
	assert.Len(t, places, minKeys, "places are used again, at random")
	masks := map[uint32]bool{}
	for range 8 {
		masks[testMR(t, testPD(t, openTest(t, Config{})), 1, 0).key>>16] = true
	}
	assert.Greater(t, len(masks), 4, "each device has a mask of its own")
}

func TestManyRegions(t *testing.T) {
	d := openTest(t, Config{Limits: Limits{MRs: 1000}})
	p := testPD(t, d)
	buf := make([]byte, 1000)
	ms := make([]verbs.MR, 1000)
	seen := map[uint32]bool{}
	for i := range ms {
		m, err := p.Register(buf[i:i+1], verbs.MRConfig{})
		require.NoError(t, err)
		ms[i] = m
		require.False(t, seen[m.LKey()])
		seen[m.LKey()] = true
	}
	_, err := p.Register(buf, verbs.MRConfig{})
	refused(t, err, ucs.ErrNoResource, "1000 are open")
	refused(t, p.Close(), ucs.ErrBusy, "1000 objects")
	for i, m := range ms {
		require.Same(t, &buf[i], &d.mrs.find(m.RKey()).at(m.Addr(), 1)[0])
	}
	for _, m := range ms {
		require.NoError(t, m.Close())
	}
}

func TestInvalidate(t *testing.T) {
	d := openTest(t, Config{})
	p, other := testPD(t, d), testPD(t, d)
	m := testMR(t, p, 8, verbs.LocalWrite)
	assert.False(t, d.invalidate(p, m.key), "one that stays")
	m.revocable = true
	assert.False(t, d.invalidate(other, m.key), "of another domain")
	assert.False(t, d.invalidate(p, m.key+1))
	require.True(t, d.invalidate(p, m.key))
	assert.False(t, d.invalidate(p, m.key), "once")
	assert.False(t, d.mrs.remove(m), "its place may be another's by now")
	assert.Nil(t, d.mrs.find(m.key))
	assert.Nil(t, m.at(m.addr, 8), "nor for who had found it")
	assert.NotNil(t, m.Bytes())
	_, err := p.Register(m.Bytes(), verbs.MRConfig{})
	require.NoError(t, err)
	refused(t, p.Close(), ucs.ErrBusy, "2 objects")
	for i := range d.mrs.versions { // the new one, whatever its key is
		if n := d.mrs.slots.at(uint32(i)); n != nil {
			require.NoError(t, n.Close())
		}
	}
}

// TestFindWhileRegistering: what find gives is always whole and has the key that
// was asked for.
func TestFindWhileRegistering(t *testing.T) {
	d := openTest(t, Config{})
	p := testPD(t, d)
	steady := testMR(t, p, 8, 0)
	var hot atomic.Uint32
	var stop atomic.Bool
	var finders, makers sync.WaitGroup
	for range 2 {
		finders.Go(func() {
			for !stop.Load() {
				if !d.own.rx.tryAcquire() { // who looks up memory is within the engine
					runtime.Gosched()
					continue
				}
				k := hot.Load()
				if m := d.mrs.find(k); m != nil {
					if m.key != k {
						t.Error("another key")
					}
					if b := m.at(m.addr, 8); b != nil && len(b) != 8 {
						t.Error("a torn slice")
					}
				}
				if d.mrs.find(steady.key) != steady {
					t.Error("a steady region is lost")
				}
				d.own.rx.tryRelease()
			}
		})
	}
	for range 2 {
		makers.Go(func() {
			var held []verbs.MR
			for range 300 {
				m, err := p.Register(make([]byte, 8), verbs.MRConfig{})
				if err != nil {
					t.Error(err)
					return
				}
				hot.Store(m.RKey())
				if held = append(held, m); len(held) > 40 { // the table grows meanwhile
					_ = held[0].Close()
					held = held[1:]
				}
			}
			for _, m := range held {
				d.invalidate(p, m.RKey())
				_ = m.Close()
			}
		})
	}
	makers.Wait()
	stop.Store(true)
	finders.Wait()
}

func BenchmarkFindMR(b *testing.B) {
	d := openTest(b, Config{})
	p := testPD(b, d)
	m := testMR(b, p, 64, verbs.LocalWrite)
	b.ReportAllocs()
	b.Run("find", func(b *testing.B) {
		for b.Loop() {
			if d.mrs.find(m.key) == nil {
				b.Fatal("lost")
			}
		}
	})
	b.Run("local", func(b *testing.B) {
		s := verbs.SGE{Addr: m.addr + 8, Len: 8, LKey: m.key}
		for b.Loop() {
			if _, ok := d.local(p, s, verbs.LocalWrite); !ok {
				b.Fatal("lost")
			}
		}
	})
}
