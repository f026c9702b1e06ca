//go:build !race

package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Software operations allocate nothing, at either end.
func TestGateSoftwareAllocs(t *testing.T) {
	for _, tr := range []string{"ud", "rc"} {
		p := newSWPair(t, tr, 1<<20)
		word, half := p.word(8), p.half(24)
		buf := make([]byte, 100_000)
		_, err := p.a.t.ctx.Register(buf, MemConfig{}) // else a long transfer over rc does, which allocates
		require.NoError(t, err)
		end := func(rs ...Request) {
			for _, r := range rs {
				for !r.Done() {
					p.a.Progress()
					p.b.Progress()
				}
			}
		}
		for name, run := range map[string]func(){
			"put":           func() { end(p.k.Put(buf[:100], 0), p.e.Flush()) },
			"long put":      func() { end(p.k.Put(buf, 0), p.e.Flush()) },
			"inline put":    func() { end(p.k.PutInline(buf[:20], 0), p.k.PutUint64(1, 8), p.e.Flush()) },
			"get":           func() { end(p.k.Get(buf[:100], 0)) },
			"long get":      func() { end(p.k.Get(buf, 0)) },
			"atomic":        func() { end(word.Or(1), half.Add(1), p.e.Flush()) },
			"fence":         func() { word.Or(1); p.e.Fence(); end(p.k.PutUint64(1, 8), p.e.Flush()) },
			"word and swap": func() { p.drop(p.k.GetUint64(0)); p.drop(word.Swap(1)) },
		} {
			for range 50 { // tables grow
				run()
			}
			assert.Zero(t, testing.AllocsPerRun(50, run), "%s: %s", tr, name)
		}
	}
}

func (p *swPair) half(off uint64) Atomic[uint32] {
	a, err := AtomicAt[uint32](p.k, off)
	assert.NoError(p.t, err)
	return a
}

// drop waits for the value of f.
func (p *swPair) drop(f Fetch[uint64]) {
	for !f.Done() {
		p.a.Progress()
		p.b.Progress()
	}
	_, err := f.Wait(p.ctx)
	assert.NoError(p.t, err)
}
