package mapped

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

// fixture is one domain in small: it lends and borrows from itself.
type fixture struct {
	owner *Owner
	keys  Keys
	rma   RMA
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return newFixtureDrain(t, 0)
}

func newFixtureDrain(t testing.TB, drain time.Duration) *fixture {
	t.Helper()
	mem, err := MapAnonymous(64 * SlotBytes)
	require.NoError(t, err)
	f := new(fixture)
	f.owner = NewOwner(NewID(), "", NewTable(mem, func() error { return Unmap(mem) }), drain)
	f.rma.Init(&f.keys)
	t.Cleanup(func() { require.NoError(t, f.keys.Close()) })
	return f
}

// kinds are the ways in which memory is reached; every test of an operation
// runs over all of them that carry it.
var kinds = []string{"direct", "counted", "far"}

// region makes memory of a kind and a key of it.
func (f *fixture) region(t testing.TB, kind string, n int, fl uct.MemFlags) (*Region, uct.RKey) {
	t.Helper()
	var r *Region
	var err error
	if kind == "direct" {
		mem, e := MapAnonymous(n)
		require.NoError(t, e)
		r, err = f.owner.Adopt(mem, -1, fl, func() error { return Unmap(mem) })
	} else {
		r, err = f.owner.Register(make([]byte, n), fl)
	}
	require.NoError(t, err)
	require.True(t, r.Hold())
	s := r.Spec()
	if kind == "far" {
		s.Copier, s.Bytes, s.Counted = fakeFar{s}, nil, false
	}
	k, err := f.keys.Add(s)
	require.NoError(t, err)
	return r, k
}

// fakeFar copies within this process what a real one copies between two.
type fakeFar struct{ s Spec }

func (f fakeFar) Read(p []byte, addr uint64) uct.Status {
	copy(p, f.bytes(p, addr))
	return 0
}

func (f fakeFar) Write(p []byte, addr uint64) uct.Status {
	copy(f.bytes(p, addr), p)
	return 0
}

func (f fakeFar) bytes(p []byte, addr uint64) []byte {
	rec := record{base: f.s.Base, size: f.s.Len}
	return rec.bytes(addr, uint64(len(p)))
}
