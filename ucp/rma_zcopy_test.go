package ucp_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// zcopies is how many puts and gets of w went without a copy.
func zcopies(w *ucp.Worker) (n uint64) {
	for _, v := range w.Stats().Snapshot() {
		if v.Name == "ucp.zcopy" {
			n = v.Value
		}
	}
	return n
}

// Long puts and gets go without a copy, out of and into memory of the program's
// that is registered and any other. The setting says from which length on.
func TestLongTransfersAreNotCopied(t *testing.T) {
	const n = 1 << 20
	for _, tc := range []struct {
		thresh          string
		any, registered int // shortest that is not copied
	}{
		{"auto", 16 << 10, 4 << 10},
		{"100", 100, 100},
		{"inf", n + 1, n + 1},
	} {
		t.Run(tc.thresh, func(t *testing.T) {
			c, a, b, ab := readers(t, "UCX_ZCOPY_THRESH="+tc.thresh)
			theirs, err := c.Allocate(n, ucp.MemConfig{})
			require.NoError(t, err)
			k, err := ab.UnpackKey(theirs.Key())
			require.NoError(t, err)
			mine, err := c.Allocate(n, ucp.MemConfig{})
			require.NoError(t, err)
			for _, size := range []int{60, 99, 100, 4<<10 - 1, 4 << 10, 16<<10 - 1, 16 << 10, 100_001, n} {
				for _, m := range []struct {
					name  string
					buf   []byte
					opts  ucp.Opts
					least int
				}{
					{"any memory", make([]byte, size), ucp.Opts{}, tc.any},
					{"registered memory", mine.Bytes()[n-size:], ucp.Opts{}, tc.registered},
					{"registered memory, said", mine.Bytes()[:size], ucp.Opts{Mem: mine}, tc.registered},
				} {
					want, before := noise(size), zcopies(a)
					copy(m.buf, want)
					done := func(r ucp.Request) {
						both(t, a, b, r.Done)
						require.NoError(t, r.Err(), "%d bytes, %s", size, m.name)
					}
					done(k.PutWith(m.buf, uint64(n-size), m.opts))
					done(ab.Flush())
					require.True(t, bytes.Equal(want, theirs.Bytes()[n-size:]), "%d bytes, %s", size, m.name)
					clear(m.buf)
					done(k.GetWith(m.buf, uint64(n-size), m.opts))
					require.True(t, bytes.Equal(want, m.buf), "%d bytes, %s", size, m.name)
					uncopied := uint64(0)
					if size >= m.least {
						uncopied = 2
					}
					assert.Equal(t, uncopied, zcopies(a)-before, "%d bytes, %s", size, m.name)
				}
			}
		})
	}
}

// Many at once wait for their turn; memory that they use cannot be closed before
// they have ended.
func TestManyUncopied(t *testing.T) {
	c, a, b, ab := readers(t)
	const n, size = 600, 20_000
	theirs, err := c.Allocate(n*size, ucp.MemConfig{})
	require.NoError(t, err)
	k, err := ab.UnpackKey(theirs.Key())
	require.NoError(t, err)
	want := noise(n * size)
	mine, err := c.Register(bytes.Clone(want), ucp.MemConfig{})
	require.NoError(t, err)
	for i := range n {
		buf := want[i*size:][:size]
		if i%2 == 0 {
			buf = mine.Bytes()[i*size:][:size]
		}
		k.Put(buf, uint64(i*size))
	}
	require.ErrorIs(t, mine.Close(), ucp.ErrBusy)
	f := ab.Flush()
	both(t, a, b, f.Done)
	require.NoError(t, f.Err())
	assert.True(t, bytes.Equal(want, theirs.Bytes()))
	assert.EqualValues(t, n, zcopies(a))
	require.NoError(t, mine.Close())
}

// What was registered for an operation is given back when it fails or is given
// up, also where nobody asks how it ended: the context closes.
func TestUncopiedThatFail(t *testing.T) {
	c, a, b, ab := readers(t)
	theirs, err := c.Allocate(1<<20, ucp.MemConfig{})
	require.NoError(t, err)
	k, err := ab.UnpackKey(theirs.Key())
	require.NoError(t, err)
	require.NoError(t, theirs.Close())
	r := k.Put(make([]byte, 1<<20), 0)
	both(t, a, b, r.Done)
	ab.Abort(nil)

	again, err := c.Allocate(1<<20, ucp.MemConfig{})
	require.NoError(t, err)
	for steps := range 20 {
		e, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
		require.NoError(t, err)
		k, err := e.UnpackKey(again.Key())
		require.NoError(t, err)
		for range 3 {
			k.Put(make([]byte, 1<<20), 0)
			k.Get(make([]byte, 1<<20), 0)
		}
		for range steps {
			a.Progress()
			b.Progress()
		}
		e.Abort(nil)
	}
}
