package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// zcopier sends out of the caller's memory, and ends that when the test says so.
type zcopier struct {
	*recorder
	answer uct.Status
	token  uct.Token
	busy   []byte
}

func (z *zcopier) AMZcopy(id uct.AMID, hdr uint64, head []byte, v []uct.Vec, t uct.Token) uct.Status {
	if z.answer == ucs.OK || z.answer == ucs.InProgress {
		z.token, z.busy = t, v[0].Buf
		z.sent = append(z.sent, packet{id: id, hdr: hdr, data: append(append([]byte(nil), head...), v[0].Buf...)})
	}
	return z.answer
}

func (z *zcopier) PendingAdd(uct.Token) uct.Status { return ucs.OK }

// A transport that says from where on zero-copy pays gets such messages in that
// form; the buffer is the caller's again only after its event.
func TestAMZcopy(t *testing.T) {
	wi, rec, e := record(t)
	w := wi.worker()
	z := &zcopier{recorder: rec, answer: ucs.InProgress}
	l := &w.t.lanes[w.t.eps[1].lane]
	l.ep, l.ifaceMaxShort, l.maxShort, l.amShort, l.maxBcopy = z, 64, 64, 64, 1000
	l.zcopy = zcopyOf(uct.Limit{MinZcopy: 100, MaxZcopy: 2000, MaxVec: 1, MaxHeader: 8})
	data := make([]byte, 3000)
	for i := range data {
		data[i] = byte(i)
	}

	for _, tc := range []struct {
		header string
		n      int
		zcopy  bool
	}{
		{"", 99, false},
		{"", 100, true},
		{"head", 100, true},
		{"longhead9", 100, false}, // too long for this form
		{"head", 1500, true},      // longer than a copy in one piece
	} {
		z.sent = nil
		r := e.AMSend(5, []byte(tc.header), data[:tc.n])
		require.Len(t, z.sent, 1)
		assert.Equal(t, packet{id: wire.User, hdr: 5 | uint64(len(tc.header))<<16, data: append([]byte(tc.header), data[:tc.n]...)}, z.sent[0])
		require.Equal(t, tc.zcopy, !r.Done(), "%d bytes, header %q", tc.n, tc.header)
		if !tc.zcopy {
			continue
		}
		assert.Same(t, &data[0], &z.busy[0], "no copy")
		r.Cancel()
		require.False(t, r.Done(), "the transport has the buffer")
		wi.HandleEvents([]uct.Event{{Token: z.token}})
		require.True(t, r.Done())
		require.NoError(t, r.Err())
		wi.HandleEvents([]uct.Event{{Token: z.token}}) // late: harmless
	}

	z.sent = nil
	require.True(t, e.AMSend(5, nil, data[:2001]).Done(), "beyond the limit: fragments")
	require.Len(t, z.sent, 3)
	require.Equal(t, wire.UserFirst, z.sent[0].id)

	// It fails, at once and later.
	r := e.AMSend(5, nil, data[:100])
	wi.HandleEvents([]uct.Event{{Token: z.token, Status: ucs.RemoteAccess}})
	require.ErrorIs(t, r.Err(), ErrRemoteAccess)
	z.answer = ucs.InvalidParam
	require.ErrorIs(t, e.AMSend(5, nil, data[:100]).Err(), ErrInvalid)

	// No room at first.
	z.answer, z.sent = ucs.NoResource, nil
	r = e.AMSend(5, []byte("head"), data[:100])
	require.False(t, r.Done())
	i := w.t.slab.Find(r.id)
	z.answer = ucs.OK
	require.Equal(t, 1, wi.HandlePending([]uct.Token{w.t.slab.Token(i)}))
	require.True(t, r.Done())
	require.NoError(t, r.Err())
	require.Equal(t, "head", string(z.sent[0].data[:4]))

	assert.Zero(t, zcopyOf(uct.Limit{MaxZcopy: 1000, MaxVec: 16}), "it says nothing, so it gains nothing")
	assert.Zero(t, w.t.am.vec[0])
}
