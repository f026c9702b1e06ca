package mapped

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// model is what an operation does to a word.
func model(op uct.AtomicOp, old, v, cmp uint64) uint64 {
	switch op {
	case uct.AtomicAdd:
		return old + v
	case uct.AtomicAnd:
		return old & v
	case uct.AtomicOr:
		return old | v
	case uct.AtomicXor:
		return old ^ v
	case uct.AtomicSwap:
		return v
	default:
		if old == cmp {
			return v
		}
		return old
	}
}

// TestAtomicsAgainstModel applies random operations to two words whose
// neighbours must not change.
func TestAtomicsAgainstModel(t *testing.T) {
	for _, kind := range []string{"direct", "counted"} {
		t.Run(kind, func(t *testing.T) {
			f := newFixture(t)
			r, k := f.region(t, kind, 32, uct.MemRemote)
			mem, base := r.Bytes(), r.Key().Base
			rnd := rand.New(rand.NewPCG(3, 4))
			var w64 uint64
			var w32 uint32
			for range 20000 {
				op := uct.AtomicOp(rnd.Uint32N(uint32(uct.NumAtomicOps)))
				v, cmp := rnd.Uint64(), rnd.Uint64()
				if rnd.Uint32N(2) == 0 {
					cmp = w64
				}
				post := uct.PostAtomics.Has(op) && rnd.Uint32N(2) == 0
				if rnd.Uint32N(2) == 0 {
					if post {
						require.Equal(t, ucs.OK, f.rma.Atomic64(op, v, base+8, k))
					} else {
						old, st := f.rma.Fetch64(op, v, cmp, base+8, k, 0)
						require.Equal(t, ucs.OK, st)
						require.Equal(t, w64, old, op)
					}
					w64 = model(op, w64, v, cmp)
				} else {
					if rnd.Uint32N(2) == 0 {
						cmp = uint64(w32)
					}
					if post {
						require.Equal(t, ucs.OK, f.rma.Atomic32(op, uint32(v), base+20, k))
					} else {
						old, st := f.rma.Fetch32(op, uint32(v), uint32(cmp), base+20, k, 0)
						require.Equal(t, ucs.OK, st)
						require.Equal(t, w32, old, op)
					}
					w32 = uint32(model(op, uint64(w32), uint64(uint32(v)), uint64(uint32(cmp))))
				}
				require.Equal(t, w64, binary.LittleEndian.Uint64(mem[8:]), op)
				require.Equal(t, w32, binary.LittleEndian.Uint32(mem[20:]), op)
			}
			for _, i := range []int{0, 16, 24} {
				assert.Zero(t, mem[i])
			}
			require.NoError(t, r.Close())
		})
	}
}

func TestAtomicsRefused(t *testing.T) {
	for _, kind := range kinds {
		f := newFixture(t)
		r, k := f.region(t, kind, 64, uct.MemRemote)
		base := r.Key().Base
		for off := uint64(1); off < 8; off++ {
			assert.Equal(t, ucs.InvalidParam, f.rma.Atomic64(uct.AtomicAdd, 1, base+off, k))
			_, st := f.rma.Fetch64(uct.AtomicAdd, 1, 0, base+off, k, 0)
			assert.Equal(t, ucs.InvalidParam, st)
			if off != 4 {
				assert.Equal(t, ucs.InvalidParam, f.rma.Atomic32(uct.AtomicAdd, 1, base+off, k))
				_, st := f.rma.Fetch32(uct.AtomicAdd, 1, 0, base+off, k, 0)
				assert.Equal(t, ucs.InvalidParam, st)
			}
		}
		if kind == "far" {
			continue
		}
		for _, op := range []uct.AtomicOp{uct.AtomicSwap, uct.AtomicCompareSwap} {
			assert.Equal(t, ucs.Unsupported, f.rma.Atomic64(op, 1, base, k), "%v without a result", op)
			assert.Equal(t, ucs.Unsupported, f.rma.Atomic32(op, 1, base, k), "%v without a result", op)
		}
		for _, op := range []uct.AtomicOp{uct.NumAtomicOps, 255} {
			_, st := f.rma.Fetch64(op, 1, 1, base, k, 0)
			assert.Equal(t, ucs.InvalidParam, st)
			_, st = f.rma.Fetch32(op, 1, 1, base, k, 0)
			assert.Equal(t, ucs.InvalidParam, st)
			assert.Equal(t, ucs.InvalidParam, f.rma.Atomic64(op, 1, base, k))
		}
		assert.Equal(t, make([]byte, 64), r.Bytes())
		require.NoError(t, r.Close())
	}
}

// TestConcurrentAtomics: no update is lost between endpoints.
func TestConcurrentAtomics(t *testing.T) {
	const each = 20000
	for _, kind := range []string{"direct", "counted"} {
		f := newFixture(t)
		r, k := f.region(t, kind, 64, uct.MemRemote)
		base := r.Key().Base
		var wg, ready sync.WaitGroup
		ready.Add(3)
		for g := range 3 {
			wg.Go(func() {
				var e RMA
				e.Init(&f.keys)
				ready.Done()
				ready.Wait() // else one may be done before the next begins
				for range each {
					e.Atomic64(uct.AtomicAdd, 1, base, k)
					e.Fetch32(uct.AtomicAdd, 1, 0, base+8, k, 0)
					e.Atomic64(uct.AtomicXor, 1<<g, base+16, k)
					for { // an increment by compare-and-swap
						old, _ := e.GetUint64(base+24, k, 0)
						if was, _ := e.Fetch64(uct.AtomicCompareSwap, old+1, old, base+24, k, 0); was == old {
							break
						}
					}
				}
			})
		}
		wg.Wait()
		mem := r.Bytes()
		assert.EqualValues(t, 3*each, binary.LittleEndian.Uint64(mem))
		assert.EqualValues(t, 3*each, binary.LittleEndian.Uint32(mem[8:]))
		assert.EqualValues(t, 0, binary.LittleEndian.Uint64(mem[16:]), "an even number of flips each")
		assert.EqualValues(t, 3*each, binary.LittleEndian.Uint64(mem[24:]))
		require.NoError(t, r.Close())
	}
}
