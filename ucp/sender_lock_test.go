package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// The data path of a Thread over shared memory takes no lock of its worker or context: it goes on while
// all are held.
func TestThreadTakesNoLock(t *testing.T) {
	x, a, b, ep, th := newSender(t, "shm")
	mem, err := x.Allocate(4096, ucp.MemConfig{})
	require.NoError(t, err)
	key, err := ep.UnpackKey(mem.Key())
	require.NoError(t, err)
	e, k := ep.On(th), key.On(th)
	var got int
	require.NoError(t, b.HandleAM(1, func(*ucp.AM) { got++ }))
	in, buf := make([]byte, 100_000), make([]byte, 100_000)
	use := func() {
		for _, n := range []int{8, 1000, len(buf)} {
			r := b.TagRecv(in, 1, exact)
			s := e.TagSend(buf[:n], 1)
			am := e.AMSend(1, nil, buf[:min(n, 1000)])
			put, get := k.Put(buf[:min(n, 4096)], 0), k.Get(in[:min(n, 4096)], 0)
			e.Fence()
			for f := th.Flush(); !r.Done() || !s.Done() || !am.Done() || !put.Done() || !get.Done() || !f.Done(); {
				th.Progress()
				b.Progress()
			}
			_, err := r.Wait(t.Context())
			require.NoError(t, err)
		}
	}
	use()
	release := ucp.HoldAll(a)
	defer release()
	for range 200 {
		use()
	}
	require.Equal(t, 3*201, got)
}
