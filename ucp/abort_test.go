package ucp_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// TestAbortLeavesOthers: an endpoint that is given up, with messages that the peer's
// device reads, fails no other to the same peer; afterwards nobody touches the memory
// that its operations were of: it is the program's again.
func TestAbortLeavesOthers(t *testing.T) {
	c, a, b, ab := readers(t)
	const size, each = 200_000, 3
	theirs, err := c.Allocate(2*each*size, ucp.MemConfig{})
	require.NoError(t, err)
	ended := func(done func() bool) { both(t, a, b, done) }

	// begin starts operations by e, of and into bufs.
	tag := ucp.Tag(0)
	begin := func(e ucp.Endpoint, bufs [][]byte) (rs []ucp.Request, recvs []ucp.RecvRequest) {
		k, err := e.UnpackKey(theirs.Key())
		require.NoError(t, err)
		for i := range each {
			p := bufs[4*i:]
			tag++
			recvs = append(recvs, b.TagRecv(p[0], tag, exact))
			rs = append(rs, e.TagSend(p[1], tag), k.Put(p[2], uint64(i*size)), k.Get(p[3], uint64((each+i)*size)))
		}
		return rs, recvs
	}
	buffers := func() (bufs [][]byte) {
		for range 4 * each {
			bufs = append(bufs, noise(size))
		}
		return bufs
	}
	for steps := range 10 {
		e, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
		require.NoError(t, err)
		old := buffers()
		rs, recvs := begin(e, old)
		for range steps {
			a.Progress()
			b.Progress()
		}
		if steps%2 == 0 {
			e.Abort(nil)
		}
		for _, r := range rs {
			r.Cancel()
			ended(r.Done)
			_ = r.Err() // either way
		}
		for _, r := range recvs {
			r.Cancel()
			ended(r.Done)
			r.Drop()
		}
		e.Abort(nil)
		for _, p := range old { // the detector of races sees who else does
			clear(p)
		}

		bufs := buffers()
		rs, recvs = begin(ab, bufs)
		for i, r := range recvs {
			ended(r.Done)
			_, err := r.Wait(t.Context())
			require.NoError(t, err)
			require.True(t, bytes.Equal(bufs[4*i], bufs[4*i+1]), "after %d steps: message %d", steps, i)
		}
		f := ab.Flush()
		rs = append(rs, f)
		for _, r := range rs {
			ended(r.Done)
			require.NoError(t, r.Wait(t.Context()))
		}
		for i := range each {
			require.True(t, bytes.Equal(theirs.Bytes()[i*size:][:size], bufs[4*i+2]), "after %d steps: put %d", steps, i)
			require.True(t, bytes.Equal(theirs.Bytes()[(each+i)*size:][:size], bufs[4*i+3]), "after %d steps: get %d", steps, i)
		}
		for _, p := range old {
			require.Equal(t, size, bytes.Count(p, []byte{0}), "after %d steps", steps)
		}
		copy(theirs.Bytes(), noise(2*each*size))
	}
	assert.Positive(t, zcopies(a))
	assert.Positive(t, readsOf(b))
}
