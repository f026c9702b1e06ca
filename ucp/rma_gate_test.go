//go:build !race

package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// Nor do long ones over queue pairs, where the memory is registered.
func TestGateUncopiedAllocs(t *testing.T) {
	c, a, b, ab := readers(t)
	const n = 64 << 10
	theirs, err := c.Allocate(n, ucp.MemConfig{})
	require.NoError(t, err)
	k, err := ab.UnpackKey(theirs.Key())
	require.NoError(t, err)
	mine, err := c.Allocate(n, ucp.MemConfig{})
	require.NoError(t, err)
	for _, o := range []ucp.Opts{{}, {Mem: mine}} {
		for name, start := range map[string]func() ucp.Request{
			"put": func() ucp.Request { return k.PutWith(mine.Bytes(), 0, o) },
			"get": func() ucp.Request { return k.GetWith(mine.Bytes(), 0, o) },
		} {
			run := func() {
				for r := start(); !r.Done(); {
					a.Progress()
					b.Progress()
				}
			}
			for range 20 {
				run()
			}
			assert.Zero(t, testing.AllocsPerRun(100, run), name)
		}
	}
}

// No one-sided operation allocates, over any transport, in any mode and size.
func TestGateOneSidedAllocs(t *testing.T) {
	for _, tr := range []string{"self", "shm"} {
		for mode, name := range map[ucp.ThreadMode]string{ucp.ThreadSingle: "single", ucp.ThreadMulti: "multi"} {
			_, k, ep := newKey(t, tr, mode, 1<<20)
			for _, n := range []int{8, 100, 64 << 10} {
				p := make([]byte, n)
				for _, o := range oneSided {
					assert.Zero(t, testing.AllocsPerRun(100, func() { o.run(t, k, p) }), "%s, %s: %s of %d bytes", tr, name, o.name, n)
				}
			}
			assert.Zero(t, testing.AllocsPerRun(100, func() {
				var b [24]byte // stays on the stack
				ended(t, k.PutInline(b[:], 8))
			}), "%s, %s: inline put from the stack", tr, name)
			assert.Zero(t, testing.AllocsPerRun(100, func() {
				k.PutUint64(1, 8)
				ep.Fence()
				ended(t, ep.Flush())
			}), "%s, %s: fence and flush", tr, name)
		}
	}
}
