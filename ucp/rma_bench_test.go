package ucp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// newKey gives a key of a's endpoint to n bytes at b, as newPair has them.
func newKey(tb testing.TB, transport string, mode ucp.ThreadMode, n int) (*ucp.MemHandle, *ucp.RemoteKey, ucp.Endpoint) {
	tb.Helper()
	c, err := ucp.Open(ucp.Config{Providers: provider(transport)})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, c.Close()) })
	a, err := c.NewWorker(ucp.WorkerConfig{Mode: mode})
	require.NoError(tb, err)
	b := a
	if transport != "self" {
		b, err = c.NewWorker(ucp.WorkerConfig{Mode: mode})
		require.NoError(tb, err)
	}
	m, err := c.Allocate(n, ucp.MemConfig{})
	require.NoError(tb, err)
	ep, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
	require.NoError(tb, err)
	k, err := ep.UnpackKey(m.Key())
	require.NoError(tb, err)
	return m, k, ep
}

// oneSided are the operations of the benchmarks and of the allocation gate.
var oneSided = []struct {
	name string
	run  func(tb testing.TB, k *ucp.RemoteKey, p []byte)
}{
	{"Put", func(tb testing.TB, k *ucp.RemoteKey, p []byte) { ended(tb, k.Put(p, 8)) }},
	{"PutInline", func(tb testing.TB, k *ucp.RemoteKey, p []byte) { ended(tb, k.PutInline(p, 8)) }},
	{"PutWith", func(tb testing.TB, k *ucp.RemoteKey, p []byte) { ended(tb, k.PutWith(p, 8, ucp.Opts{})) }},
	{"Get", func(tb testing.TB, k *ucp.RemoteKey, p []byte) { ended(tb, k.Get(p, 8)) }},
	{"PutUint64", func(tb testing.TB, k *ucp.RemoteKey, _ []byte) { ended(tb, k.PutUint64(7, 8)) }},
	{"GetUint64", func(tb testing.TB, k *ucp.RemoteKey, _ []byte) { fetched(tb, k.GetUint64(8)) }},
	{"Add", func(tb testing.TB, k *ucp.RemoteKey, _ []byte) { ended(tb, wordOf[uint64](tb, k).Add(1)) }},
	{"FetchAdd", func(tb testing.TB, k *ucp.RemoteKey, _ []byte) { fetched(tb, wordOf[uint64](tb, k).FetchAdd(1)) }},
	{"Swap32", func(tb testing.TB, k *ucp.RemoteKey, _ []byte) { fetched(tb, wordOf[uint32](tb, k).Swap(1)) }},
	{"CompareAndSwap", func(tb testing.TB, k *ucp.RemoteKey, _ []byte) {
		fetched(tb, wordOf[int64](tb, k).CompareAndSwap(-1, 1))
	}},
}

func ended(tb testing.TB, r ucp.Request) {
	if err := r.Wait(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

func fetched[T ucp.Word](tb testing.TB, f ucp.Fetch[T]) {
	if _, err := f.Wait(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

func wordOf[T ucp.Word](tb testing.TB, k *ucp.RemoteKey) ucp.Atomic[T] {
	a, err := ucp.AtomicAt[T](k, 16)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func benchPut(b *testing.B, put func(k *ucp.RemoteKey, p []byte) ucp.Request) {
	for _, tr := range []string{"self", "shm"} {
		for mode, name := range map[ucp.ThreadMode]string{ucp.ThreadSingle: "single", ucp.ThreadMulti: "multi"} {
			for _, n := range []int{8, 1024, 64 << 10} {
				b.Run(fmt.Sprintf("%s/%s/%d", tr, name, n), func(b *testing.B) {
					_, k, _ := newKey(b, tr, mode, 1<<20)
					p := make([]byte, n)
					b.ReportAllocs()
					b.SetBytes(int64(n))
					for b.Loop() {
						ended(b, put(k, p))
					}
				})
			}
		}
	}
}

func BenchmarkPut(b *testing.B) {
	benchPut(b, func(k *ucp.RemoteKey, p []byte) ucp.Request { return k.Put(p, 0) })
}

func BenchmarkPutInline(b *testing.B) {
	benchPut(b, func(k *ucp.RemoteKey, p []byte) ucp.Request { return k.PutInline(p, 0) })
}

func BenchmarkGet(b *testing.B) {
	benchPut(b, func(k *ucp.RemoteKey, p []byte) ucp.Request { return k.Get(p, 0) })
}

func benchWord(b *testing.B, op func(k *ucp.RemoteKey, a ucp.Atomic[uint64])) {
	for _, tr := range []string{"self", "shm"} {
		for mode, name := range map[ucp.ThreadMode]string{ucp.ThreadSingle: "single", ucp.ThreadMulti: "multi"} {
			b.Run(tr+"/"+name, func(b *testing.B) {
				_, k, _ := newKey(b, tr, mode, 4096)
				a := wordOf[uint64](b, k)
				b.ReportAllocs()
				for b.Loop() {
					op(k, a)
				}
			})
		}
	}
}

func BenchmarkPutUint64(b *testing.B) {
	benchWord(b, func(k *ucp.RemoteKey, _ ucp.Atomic[uint64]) { k.PutUint64(1, 8) })
}

func BenchmarkGetUint64(b *testing.B) {
	benchWord(b, func(k *ucp.RemoteKey, _ ucp.Atomic[uint64]) { k.GetUint64(8) })
}

func BenchmarkAtomicAdd(b *testing.B) {
	benchWord(b, func(_ *ucp.RemoteKey, a ucp.Atomic[uint64]) { a.Add(1) })
}

func BenchmarkFetchAdd(b *testing.B) {
	benchWord(b, func(_ *ucp.RemoteKey, a ucp.Atomic[uint64]) { a.FetchAdd(1) })
}
