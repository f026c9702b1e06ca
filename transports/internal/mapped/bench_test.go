package mapped

import (
	"testing"

	"github.com/goucx/goucx/uct"
)

// The interface that the layer above calls through.
type rma interface {
	PutShort(p []byte, addr uint64, k uct.RKey) uct.Status
	PutUint64(v, addr uint64, k uct.RKey) uct.Status
	GetUint64(addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status)
	GetShort(p []byte, addr uint64, k uct.RKey) uct.Status
	Atomic64(op uct.AtomicOp, v, addr uint64, k uct.RKey) uct.Status
	Fetch64(op uct.AtomicOp, v, cmp, addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status)
}

func bench(b *testing.B, kind string, op func(e rma, addr uint64, k uct.RKey)) {
	f := newFixture(b)
	r, k := f.region(b, kind, 1<<20, uct.MemRemote)
	var e rma = &f.rma
	base := r.Key().Base
	b.ReportAllocs()
	for b.Loop() {
		op(e, base, k)
	}
}

func benchKinds(b *testing.B, op func(e rma, addr uint64, k uct.RKey)) {
	for _, kind := range []string{"direct", "counted"} {
		b.Run(kind, func(b *testing.B) { bench(b, kind, op) })
	}
}

func BenchmarkPutUint64(b *testing.B) {
	benchKinds(b, func(e rma, addr uint64, k uct.RKey) { e.PutUint64(1, addr, k) })
}

func BenchmarkPutShort(b *testing.B) {
	p := make([]byte, 1<<20)
	for _, n := range []int{8, 64, 1024, 1 << 20} {
		b.Run(map[int]string{8: "8", 64: "64", 1024: "1K", 1 << 20: "1M"}[n], func(b *testing.B) {
			b.SetBytes(int64(n))
			bench(b, "direct", func(e rma, addr uint64, k uct.RKey) { e.PutShort(p[:n], addr, k) })
		})
	}
}

func BenchmarkGetUint64(b *testing.B) {
	benchKinds(b, func(e rma, addr uint64, k uct.RKey) { e.GetUint64(addr, k, 0) })
}

func BenchmarkGetShort(b *testing.B) {
	p := make([]byte, 8)
	benchKinds(b, func(e rma, addr uint64, k uct.RKey) { e.GetShort(p, addr, k) })
}

func BenchmarkAtomic64Add(b *testing.B) {
	benchKinds(b, func(e rma, addr uint64, k uct.RKey) { e.Atomic64(uct.AtomicAdd, 1, addr, k) })
}

func BenchmarkFetch64Add(b *testing.B) {
	benchKinds(b, func(e rma, addr uint64, k uct.RKey) { e.Fetch64(uct.AtomicAdd, 1, 0, addr, k, 0) })
}
