package mapped

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// TestDirectStaysMapped: closed memory is neither unmapped nor used again while
// a key holds it.
func TestDirectStaysMapped(t *testing.T) {
	f := newFixture(t)
	mem, err := MapAnonymous(4096)
	require.NoError(t, err)
	freed := 0
	r, err := f.owner.Adopt(mem, -1, uct.MemRemote, func() error { freed++; return Unmap(mem) })
	require.NoError(t, err)
	p := r.Key()
	k, err := f.owner.Resolve(&p, &f.keys)
	require.NoError(t, err)
	k2, err := f.owner.Resolve(&p, &f.keys)
	require.NoError(t, err)
	bytes := f.keys.Attr(k).Bytes

	require.NoError(t, r.Close())
	require.NoError(t, r.Close(), "idempotent")
	assert.Equal(t, ucs.RemoteAccess, f.rma.PutUint64(1, p.Base, k))
	bytes[0] = 1 // still there
	f.keys.Release(k)
	assert.Zero(t, freed)
	f.keys.Release(k) // not held: ignored
	f.keys.Release(k2)
	assert.Equal(t, 1, freed)
	assert.Zero(t, f.keys.Len())
	assert.Equal(t, uct.KeyAttr{}, f.keys.Attr(k))
	assert.Equal(t, ucs.InvalidParam, f.rma.PutUint64(1, p.Base, k), "a released key permits nothing")

	_, err = f.owner.Resolve(&p, &f.keys)
	assert.ErrorIs(t, err, ucs.ErrRemoteAccess)
}

// TestPinned: the collector leaves registered memory alone until it is closed.
func TestPinned(t *testing.T) {
	f := newFixture(t)
	collected := make(chan struct{})
	buf := make([]byte, 1<<16)
	runtime.AddCleanup(&buf[0], func(int) { close(collected) }, 0)
	r, err := f.owner.Register(buf, uct.MemRemote)
	require.NoError(t, err)
	p := r.Key()
	k, err := f.owner.Resolve(&p, &f.keys)
	require.NoError(t, err)
	buf = nil
	for range 3 {
		runtime.GC()
	}
	require.Equal(t, ucs.OK, f.rma.PutUint64(42, p.Base, k))
	require.NoError(t, r.Close())
	f.keys.Release(k)
	r = nil
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-collected:
			return true
		default:
			return false
		}
	}, time.Minute, time.Millisecond)
}

// TestForeignMemory: what is not of the Go heap registers too.
func TestForeignMemory(t *testing.T) {
	f := newFixture(t)
	mem, err := MapAnonymous(4096)
	require.NoError(t, err)
	r, err := f.owner.Register(mem[100:200], uct.MemRemote)
	require.NoError(t, err)
	p := r.Key()
	k, err := f.owner.Resolve(&p, &f.keys)
	require.NoError(t, err)
	require.Equal(t, ucs.OK, f.rma.PutShort([]byte("here"), p.Base, k))
	assert.Equal(t, "here", string(mem[100:104]))
	require.NoError(t, r.Close())
	f.keys.Release(k)
	require.NoError(t, Unmap(mem))
}

// TestCloseWaits: Close of registered memory ends after the accesses under way,
// whoever holds a key, and nothing lands afterwards.
func TestCloseWaits(t *testing.T) {
	f := newFixtureDrain(t, time.Minute)
	r, _ := f.region(t, "counted", 64, uct.MemRemote)
	p := r.Key()
	slot := SlotAt(f.owner.Table().Bytes(), p.Slot)
	require.True(t, slot.Enter(p.Gen))
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	for slot.Holds(p.Gen) {
		runtime.Gosched()
	}
	assert.False(t, slot.Enter(p.Gen), "nobody gets in any more")
	select {
	case <-closed:
		t.Fatal("closed with an access under way")
	default:
	}
	assert.Nil(t, f.owner.Find(p.Slot, p.Gen))
	slot.Leave()
	require.NoError(t, <-closed)
}

func TestExposed(t *testing.T) {
	f := newFixtureDrain(t, time.Millisecond)
	r, k := f.region(t, "counted", 64, uct.MemRemote)
	p := r.Key()
	slot := SlotAt(f.owner.Table().Bytes(), p.Slot)
	require.True(t, slot.Enter(p.Gen)) // and dies there
	err := r.Close()
	require.ErrorIs(t, err, ErrExposed)
	require.ErrorIs(t, err, ucs.ErrTimeout)
	assert.Equal(t, err, r.Close(), "idempotent")
	f.keys.Release(k)
	assert.Len(t, r.Bytes(), 64, "stays pinned")

	// Its slot is never another region's.
	for range 40 {
		n, err := f.owner.Register(make([]byte, 8), uct.MemRemote)
		require.NoError(t, err)
		assert.NotEqual(t, p.Slot, n.Key().Slot)
	}
}

// TestSlotReuse: a key of an earlier region in the slot does not fit the next.
func TestSlotReuse(t *testing.T) {
	f := newFixture(t)
	r, k := f.region(t, "direct", 64, uct.MemRemote)
	old := r.Key()
	require.NoError(t, r.Close())
	next, err := f.owner.Register(make([]byte, 64), uct.MemRemote)
	require.NoError(t, err)
	require.Equal(t, old.Slot, next.Key().Slot, "the test wants the same slot")
	require.NotEqual(t, old.Gen, next.Key().Gen)
	for op, st := range everything(f, old.Base, k) {
		assert.Equal(t, ucs.RemoteAccess, st, op)
	}
	assert.Nil(t, f.owner.Find(old.Slot, old.Gen))
	assert.Nil(t, f.owner.Find(old.Slot, 0))
	assert.Nil(t, f.owner.Find(63, old.Gen))
	assert.Nil(t, f.owner.Find(1<<31, old.Gen))
	require.Equal(t, ucs.OK, r.Revoke(), "of a closed region: leaves its heir alone")
	assert.True(t, SlotAt(f.owner.Table().Bytes(), old.Slot).Holds(next.Key().Gen))
	require.NoError(t, next.Close())
}

func TestTableFull(t *testing.T) {
	f := newFixture(t)
	var rs []*Region
	for range 64 {
		r, err := f.owner.Register(make([]byte, 1), uct.MemRemote)
		require.NoError(t, err)
		rs = append(rs, r)
	}
	_, err := f.owner.Register(make([]byte, 1), uct.MemRemote)
	require.ErrorIs(t, err, ucs.ErrNoResource)
	require.ErrorIs(t, f.owner.Close(), ucs.ErrBusy)
	require.NoError(t, rs[5].Close())
	r, err := f.owner.Register(make([]byte, 1), uct.MemRemote)
	require.NoError(t, err)
	assert.Equal(t, rs[5].Key().Slot, r.Key().Slot)
}

// TestTableOutlivesOwner: the table stays while a key of another domain needs it.
func TestTableOutlivesOwner(t *testing.T) {
	mem, err := MapAnonymous(4096)
	require.NoError(t, err)
	freed := false
	o := NewOwner(NewID(), "", NewTable(mem, func() error { freed = true; return Unmap(mem) }), 0)
	r, err := o.Register(make([]byte, 64), uct.MemRemote)
	require.NoError(t, err)
	var keys Keys
	p := r.Key()
	k, err := o.Resolve(&p, &keys)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, o.Close())
	require.False(t, freed)
	e := RMA{keys: &keys}
	assert.Equal(t, ucs.RemoteAccess, e.PutUint64(1, p.Base, k))
	keys.Release(k)
	assert.True(t, freed)
	require.NoError(t, keys.Close())
}

// TestResolveCompares: a key that describes a region otherwise than its owner
// does is refused, checksum or not.
func TestResolveCompares(t *testing.T) {
	f := newFixture(t)
	r, _ := f.region(t, "direct", 64, uct.MemRemoteGet)
	for name, change := range map[string]func(*PackedKey){
		"longer": func(p *PackedKey) { p.Len++ },
		"lower":  func(p *PackedKey) { p.Base -= 8 },
		"flags":  func(p *PackedKey) { p.Flags = uct.MemRemote },
		"kind":   func(p *PackedKey) { p.Kind = Registered },
		"gen":    func(p *PackedKey) { p.Gen++ },
		"slot":   func(p *PackedKey) { p.Slot++ },
	} {
		p := r.Key()
		change(&p)
		_, err := f.owner.Resolve(&p, &f.keys)
		assert.ErrorIs(t, err, ucs.ErrRemoteAccess, name)
	}
	assert.Equal(t, 1, f.keys.Len())
	require.NoError(t, r.Close())
}

// TestRevokeWhileWriting: a writer that runs all along sees OK, then
// RemoteAccess for good; after Close not a byte changes.
func TestRevokeWhileWriting(t *testing.T) {
	for _, kind := range []string{"direct", "counted"} {
		f := newFixtureDrain(t, time.Minute)
		r, k := f.region(t, kind, 1<<20, uct.MemRemote)
		mem, base := r.Bytes(), r.Key().Base
		started, ended := make(chan struct{}), make(chan uct.Status)
		go func() {
			var once sync.Once
			var e RMA
			e.Init(&f.keys)
			p := make([]byte, 1<<20)
			for v := byte(0); ; v++ {
				p[0], p[len(p)-1] = v, v
				if st := e.PutShort(p, base, k); st != ucs.OK {
					ended <- st
					return
				}
				once.Do(func() { close(started) })
			}
		}()
		<-started
		require.NoError(t, r.Close())
		var first, last byte
		if kind == "counted" && !race.Enabled {
			first, last = mem[0], mem[len(mem)-1]
		}
		assert.Equal(t, ucs.RemoteAccess, <-ended)
		if kind == "counted" && !race.Enabled {
			assert.Equal(t, [2]byte{first, last}, [2]byte{mem[0], mem[len(mem)-1]}, "a late write")
		}
	}
}

func TestKeysRefuse(t *testing.T) {
	var keys Keys
	slot := SlotAt(newFixture(t).owner.Table().Bytes(), 0)
	good := Spec{Base: 4096, Len: 4, Bytes: make([]byte, 4), Slot: slot, Gen: 1}
	for name, change := range map[string]func(*Spec){
		"empty":      func(s *Spec) { s.Len, s.Bytes = 0, nil },
		"length":     func(s *Spec) { s.Len = 5 },
		"wraps":      func(s *Spec) { s.Base = ^uint64(2) },
		"slot":       func(s *Spec) { s.Slot = nil },
		"generation": func(s *Spec) { s.Gen = 0 },
	} {
		s := good
		change(&s)
		_, err := keys.Add(s)
		assert.ErrorIs(t, err, ucs.ErrInvalid, name)
	}
	released := 0
	good.Release = func() { released++ }
	seen := map[uct.RKey]bool{}
	for range 3000 { // three chunks
		k, err := keys.Add(good)
		require.NoError(t, err)
		require.NotZero(t, k)
		require.Zero(t, k%recordBytes)
		require.False(t, seen[k])
		seen[k] = true
	}
	require.NoError(t, keys.Close())
	assert.Equal(t, 3000, released)
	_, err := keys.Add(good)
	assert.ErrorIs(t, err, ucs.ErrClosed)
	require.NoError(t, keys.Close())
}

// TestFarTable: a Far's place is used again, and others keep theirs.
func TestFarTable(t *testing.T) {
	f := newFixture(t)
	r1, k1 := f.region(t, "far", 64, uct.MemRemote)
	r2, k2 := f.region(t, "far", 64, uct.MemRemote)
	f.keys.Release(k1)
	_, k3 := f.region(t, "far", 64, uct.MemRemote)
	require.Equal(t, ucs.OK, f.rma.PutUint64(7, r2.Key().Base, k2))
	assert.Equal(t, byte(7), r2.Bytes()[0])
	assert.Zero(t, r1.Bytes()[0])
	assert.Len(t, *f.keys.copiers.Load(), 2)
	f.keys.Release(k2)
	f.keys.Release(k3)
}

func TestAdoptFails(t *testing.T) {
	o := NewOwner(NewID(), "", NewTable(nil, nil), 0)
	_, err := o.Adopt(make([]byte, 1), -1, 0, func() error { return errors.New("not mine") })
	require.ErrorIs(t, err, ucs.ErrNoResource)
	_, err = o.Register(nil, 0)
	require.ErrorIs(t, err, ucs.ErrInvalid)
	_, err = o.Register(make([]byte, 1), 0)
	require.ErrorIs(t, err, ucs.ErrNoResource)
}
