package mapped

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// putForms and getForms are all ways to move bytes, as one signature.
var putForms = map[string]func(r *RMA, p []byte, addr uint64, k uct.RKey) uct.Status{
	"short": func(r *RMA, p []byte, addr uint64, k uct.RKey) uct.Status { return r.PutShort(p, addr, k) },
	"bcopy": func(r *RMA, p []byte, addr uint64, k uct.RKey) uct.Status { return r.PutBcopy(p, addr, k, 1) },
	"zcopy": func(r *RMA, p []byte, addr uint64, k uct.RKey) uct.Status {
		return r.PutZcopy(vecs(p), addr, k, 1)
	},
}

var getForms = map[string]func(r *RMA, p []byte, addr uint64, k uct.RKey) uct.Status{
	"short": func(r *RMA, p []byte, addr uint64, k uct.RKey) uct.Status { return r.GetShort(p, addr, k) },
	"bcopy": func(r *RMA, p []byte, addr uint64, k uct.RKey) uct.Status { return r.GetBcopy(p, addr, k, 1) },
	"zcopy": func(r *RMA, p []byte, addr uint64, k uct.RKey) uct.Status {
		return r.GetZcopy(vecs(p), addr, k, 1)
	},
}

// vecs cuts p into three pieces, one of them empty.
func vecs(p []byte) []uct.Vec {
	m := len(p) / 3
	return []uct.Vec{{Buf: p[:m]}, {Buf: p[m:m]}, {Buf: p[m:]}}
}

func fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, r.Uint64())
	}
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// TestCopy moves every size at every alignment and looks at what lies around,
// and in the end at the whole region.
func TestCopy(t *testing.T) {
	sizes := []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255, 256, 257, 4096, maxCopyBytes - 1, maxCopyBytes, maxCopyBytes + 1, maxCopyBytes + turnBytes, 2*maxCopyBytes + 3}
	for _, kind := range kinds {
		f := newFixture(t)
		r, k := f.region(t, kind, 3*maxCopyBytes, uct.MemRemote)
		base := r.Key().Base
		for name := range putForms {
			t.Run(kind+"/"+name, func(t *testing.T) {
				const pageBytes = 4096
				want := make([]byte, len(r.Bytes()))
				fill(want, 7)
				copy(r.Bytes(), want)
				for i, n := range sizes {
					for _, off := range []int{0, 1, 3, 7, 8, 4093} {
						if n > 1<<16 && off > 1 {
							continue
						}
						p := make([]byte, n)
						fill(p, uint64(i*100+off))
						copy(want[off:], p)
						require.Equal(t, ucs.OK, putForms[name](&f.rma, p, base+uint64(off), k))
						around := min(len(want), off+n+pageBytes)
						require.True(t, bytes.Equal(want[:around], r.Bytes()[:around]), "put %d bytes at %d", n, off)

						q := make([]byte, n)
						for range 2 { // an odd number of transfers in all: each kind has both directions
							clear(q)
							require.Equal(t, ucs.OK, getForms[name](&f.rma, q, base+uint64(off), k))
							require.True(t, bytes.Equal(p, q), "get %d bytes at %d", n, off)
						}
					}
				}
				require.True(t, bytes.Equal(want, r.Bytes()), "nothing else was written")
			})
		}
		require.NoError(t, r.Close())
	}
}

func TestUint64(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			f := newFixture(t)
			r, k := f.region(t, kind, 64, uct.MemRemote)
			base := r.Key().Base
			for _, off := range []uint64{0, 8, 1, 5, 56} {
				v := 0x0102030405060708 + off
				require.Equal(t, ucs.OK, f.rma.PutUint64(v, base+off, k))
				assert.Equal(t, v, binary.LittleEndian.Uint64(r.Bytes()[off:]))
				got, st := f.rma.GetUint64(base+off, k, 0)
				require.Equal(t, ucs.OK, st)
				assert.Equal(t, v, got)
			}
			require.NoError(t, r.Close())
		})
	}
}

// TestRange asks for what lies outside and sees the region untouched.
func TestRange(t *testing.T) {
	for _, kind := range kinds {
		for _, size := range []int{1, 7, 8, 9, 100} {
			f := newFixture(t)
			r, k := f.region(t, kind, size, uct.MemRemote)
			base, n := r.Key().Base, uint64(size)
			before := bytes.Clone(r.Bytes())
			for _, c := range []struct {
				name      string
				addr, len uint64
			}{
				{"one beyond", base, n + 1},
				{"last byte and one", base + n - 1, 2},
				{"last seven and one", base + n - 7, 8},
				{"one before", base - 1, 1},
				{"eight before", base - 8, 8},
				{"far before", 0, 8},
				{"wraps", math.MaxUint64, 8},
				{"wraps to base", base - 4, math.MaxUint64 - base + 4},
				{"behind", base + n, 1},
				{"eight behind", base + n, 8},
				{"empty behind", base + n + 1, 0},
				{"empty before", base - 1, 0},
			} {
				if c.len > 1<<20 {
					c.len = 1 << 20
				}
				p := bytes.Repeat([]byte{0xaa}, int(c.len))
				for form := range putForms {
					assert.Equal(t, ucs.InvalidParam, putForms[form](&f.rma, p, c.addr, k), "%s %d put %s %s", kind, size, form, c.name)
					assert.Equal(t, ucs.InvalidParam, getForms[form](&f.rma, p, c.addr, k), "%s %d get %s %s", kind, size, form, c.name)
				}
				if c.len != 8 {
					continue
				}
				assert.Equal(t, ucs.InvalidParam, f.rma.PutUint64(1, c.addr, k))
				_, st := f.rma.GetUint64(c.addr, k, 0)
				assert.Equal(t, ucs.InvalidParam, st)
				if kind != "far" && c.addr&7 == 0 {
					_, st = f.rma.Fetch64(uct.AtomicAdd, 1, 0, c.addr, k, 0)
					assert.Equal(t, ucs.InvalidParam, st)
					assert.Equal(t, ucs.InvalidParam, f.rma.Atomic64(uct.AtomicAdd, 1, c.addr, k))
				}
			}
			assert.Equal(t, before, r.Bytes())
			assert.Equal(t, ucs.OK, f.rma.PutShort(nil, base+n, k), "empty at the end")
			require.NoError(t, r.Close())
		}
	}
}

// TestZcopyChecksFirst: a vector that ends beyond the region changes nothing,
// nor does one whose length overflows.
func TestZcopyChecksFirst(t *testing.T) {
	f := newFixture(t)
	r, k := f.region(t, "direct", 16, uct.MemRemote)
	v := []uct.Vec{{Buf: []byte("12345678")}, {Buf: []byte("123456789")}}
	assert.Equal(t, ucs.InvalidParam, f.rma.PutZcopy(v, r.Key().Base, k, 0))
	assert.Equal(t, make([]byte, 16), r.Bytes())
	assert.Equal(t, ucs.InvalidParam, f.rma.GetZcopy(v, r.Key().Base, k, 0))
	assert.Equal(t, "12345678", string(v[0].Buf))
	require.NoError(t, r.Close())
}

func TestFlags(t *testing.T) {
	for _, kind := range kinds {
		for fl := range uct.MemRemote + 1 {
			f := newFixture(t)
			r, k := f.region(t, kind, 64, fl)
			base, p := r.Key().Base, make([]byte, 16)
			answer := func(need uct.MemFlags) uct.Status {
				if fl&need != 0 {
					return ucs.OK
				}
				return ucs.RemoteAccess
			}
			atomic := answer(uct.MemRemoteAtomic)
			if kind == "far" {
				atomic = ucs.RemoteAccess
			}
			assert.Equal(t, answer(uct.MemRemotePut), f.rma.PutShort(p, base, k))
			assert.Equal(t, answer(uct.MemRemotePut), f.rma.PutShort(p[:8], base, k))
			assert.Equal(t, answer(uct.MemRemotePut), f.rma.PutUint64(0, base, k))
			assert.Equal(t, answer(uct.MemRemotePut), f.rma.PutZcopy(vecs(p), base, k, 0))
			assert.Equal(t, answer(uct.MemRemoteGet), f.rma.GetShort(p, base, k))
			assert.Equal(t, answer(uct.MemRemoteGet), f.rma.GetShort(p[:8], base, k))
			assert.Equal(t, answer(uct.MemRemoteGet), f.rma.GetZcopy(vecs(p), base, k, 0))
			_, st := f.rma.GetUint64(base, k, 0)
			assert.Equal(t, answer(uct.MemRemoteGet), st)
			assert.Equal(t, atomic, f.rma.Atomic64(uct.AtomicAdd, 0, base, k))
			assert.Equal(t, atomic, f.rma.Atomic32(uct.AtomicAdd, 0, base, k))

			a := f.keys.Attr(k)
			assert.Equal(t, fl&uct.MemRemotePut != 0, a.Ops.Has(uct.OpsPut))
			assert.Equal(t, fl&uct.MemRemoteGet != 0, a.Ops.Has(uct.OpsGet))
			assert.Equal(t, atomic == ucs.OK, a.Atomic64 == uct.AllAtomics && a.Atomic32 == uct.AllAtomics && a.Ops.Has(uct.OpAtomics))
			assert.Equal(t, kind != "far" && fl&3 == 3, a.Bytes != nil)
			require.NoError(t, r.Close())
		}
	}
}

// everything answers what each operation answers, for a 64-byte region.
func everything(f *fixture, base uint64, k uct.RKey) map[string]uct.Status {
	p, m := make([]byte, 16), make(map[string]uct.Status)
	for form := range putForms {
		m["put "+form] = putForms[form](&f.rma, p, base, k)
		m["put 8 "+form] = putForms[form](&f.rma, p[:8], base, k)
		m["get "+form] = getForms[form](&f.rma, p, base, k)
		m["get 8 "+form] = getForms[form](&f.rma, p[:8], base, k)
		m["put 0 "+form] = putForms[form](&f.rma, nil, base, k)
	}
	m["put uint64"] = f.rma.PutUint64(0, base, k)
	_, m["get uint64"] = f.rma.GetUint64(base, k, 0)
	m["atomic32"] = f.rma.Atomic32(uct.AtomicAdd, 0, base, k)
	m["atomic64"] = f.rma.Atomic64(uct.AtomicAdd, 0, base, k)
	_, m["fetch32"] = f.rma.Fetch32(uct.AtomicSwap, 0, 0, base, k, 0)
	_, m["fetch64"] = f.rma.Fetch64(uct.AtomicSwap, 0, 0, base, k, 0)
	return m
}

func TestRevoked(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			f := newFixture(t)
			r, k := f.region(t, kind, 64, uct.MemRemote)
			require.Equal(t, ucs.OK, f.rma.PutShort([]byte("x"), r.Key().Base, k))
			require.Equal(t, ucs.OK, r.Revoke())
			require.Equal(t, ucs.OK, r.Revoke(), "idempotent")
			for op, st := range everything(f, r.Key().Base, k) {
				assert.Equal(t, ucs.RemoteAccess, st, op)
			}
			assert.Equal(t, byte('x'), r.Bytes()[0])
			require.NoError(t, r.Close())
		})
	}
}

func TestGate(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			f := newFixture(t)
			r, k := f.region(t, kind, 64, uct.MemRemote)
			for _, gate := range []uct.Status{ucs.NoResource, ucs.PeerFailed, ucs.Closed} {
				f.rma.SetGate(gate)
				for op, st := range everything(f, r.Key().Base, k) {
					assert.Equal(t, gate, st, op)
				}
			}
			f.rma.SetGate(ucs.OK)
			assert.Equal(t, ucs.OK, f.rma.PutUint64(1, r.Key().Base, k))
			f.rma.Barrier()
			require.NoError(t, r.Close())
		})
	}
}

// TestNoAllocations: none on any path, unhappy ones included.
func TestNoAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, kind := range kinds {
		f := newFixture(t)
		r, k := f.region(t, kind, 4096, uct.MemRemote)
		base, p, v := r.Key().Base, make([]byte, 1024), vecs(make([]byte, 100))
		all := func() {
			f.rma.PutUint64(1, base, k)
			f.rma.PutShort(p[:8], base, k)
			f.rma.PutShort(p, base, k)
			f.rma.PutBcopy(p, base, k, 0)
			f.rma.PutZcopy(v, base, k, 0)
			f.rma.GetUint64(base, k, 0)
			f.rma.GetShort(p[:8], base, k)
			f.rma.GetShort(p, base, k)
			f.rma.GetBcopy(p, base, k, 0)
			f.rma.GetZcopy(v, base, k, 0)
			for op := range uct.NumAtomicOps {
				f.rma.Atomic32(op, 1, base, k)
				f.rma.Atomic64(op, 1, base, k)
				f.rma.Fetch32(op, 1, 2, base, k, 0)
				f.rma.Fetch64(op, 1, 2, base, k, 0)
			}
		}
		assert.Zero(t, testing.AllocsPerRun(100, all), kind)
		r.Revoke()
		assert.Zero(t, testing.AllocsPerRun(100, all), "%s, revoked", kind)
		require.NoError(t, r.Close())
	}
}
