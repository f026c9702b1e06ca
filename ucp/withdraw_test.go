package ucp

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// withdrawn are the messages of h's endpoint that withdraw or refuse, by id.
func (h *handshake) withdrawn() map[uint64]packet {
	m := make(map[uint64]packet)
	for _, k := range h.pending.sent {
		if k.id == wire.Cancel || k.id == wire.Reject || k.id == wire.Abort {
			m[k.hdr] = k
		}
	}
	return m
}

// Abort tells the peer of everything that it waits for, and nothing else.
func TestAbortWithdraws(t *testing.T) {
	h := newHandshake(t)
	h.pending.room = 100
	e := h.p.t.handle(1)
	cause := errors.New("no more")
	e.Abort(cause)
	for _, q := range []Request{h.match, h.rts, h.data} {
		require.True(t, q.Done())
		require.ErrorIs(t, q.Err(), cause)
	}
	want := map[uint64]packet{
		h.rts.id: {id: wire.Abort, hdr: h.rts.id, data: []byte("\x00no more")},
		h.dataID: {id: wire.Abort, hdr: h.dataID, data: []byte("\x01no more")},
		0:        {id: wire.Abort, data: []byte("\x03no more")},
	}
	for id, k := range h.withdrawn() {
		k.data = append([]byte(nil), k.data...)
		assert.Equal(t, want[id], k)
		delete(want, id)
	}
	assert.Empty(t, want)
	require.False(t, h.fetch.Done(), "a receive is the worker's")
}

// Each request is withdrawn by itself, once; what comes for it later is late.
func TestCancelWithdraws(t *testing.T) {
	h := newHandshake(t)
	h.pending.room = 100
	w := h.p.worker()
	for _, q := range []Request{h.match, h.rts, h.data, h.fetch.Request} {
		q.Cancel()
		q.Cancel()
		require.True(t, q.Done())
		require.ErrorIs(t, q.Err(), ErrCanceled)
	}
	refusal := append([]byte{byte(ucs.Canceled)}, "its receive was canceled"...)
	assert.Equal(t, map[uint64]packet{
		h.rts.id:  {id: wire.Cancel, hdr: h.rts.id, data: []byte{wire.CancelRTS}},
		h.dataID:  {id: wire.Cancel, hdr: h.dataID, data: []byte{wire.CancelData}},
		2<<32 | 8: {id: wire.Reject, hdr: 2<<32 | 8, data: refusal[:16]},
	}, h.withdrawn())
	l := &w.t.lanes[w.t.eps[1].lane]
	assert.Zero(t, l.unacked)
	assert.Zero(t, l.creditsUsed)
	deliver(h.p,
		packet{wire.RTR, mine, h.rts.id, words("", 1<<32|1, 1)}, packet{wire.SyncAck, mine, h.match.id, nil},
		packet{wire.Reject, mine, h.data.id, refusal}, packet{wire.Data, mine, h.fetch.id, []byte("late")})
	assert.Zero(t, w.t.count.Value(cntProtocolError))
	assert.Equal(t, uint64(4), w.t.count.Value(cntStale))
	_, err := h.fetch.Wait(context.Background())
	require.ErrorIs(t, err, ErrCanceled)
}

// What the peer withdraws ends here: kept, taken, and asked for.
func TestPeerWithdraws(t *testing.T) {
	h := newHandshake(t)
	h.pending.room = 100
	w := h.p.worker()
	k, ok := w.TagMprobe(6, ^Tag(0))
	require.True(t, ok)
	deliver(h.p, packet{wire.RTS, mine, 7, words("", 2<<32|1, 10)})
	deliver(h.p,
		packet{wire.Cancel, mine, h.kept, []byte{wire.CancelRTS}}, packet{wire.Cancel, mine, 2<<32 | 1, []byte{wire.CancelRTS}},
		packet{wire.Cancel, mine, 2<<32 | 8, []byte{wire.CancelRTS}})
	assert.Zero(t, w.t.matching.unexpQueue.Len())
	m, err := h.fetch.Wait(context.Background())
	require.ErrorIs(t, err, ErrCanceled)
	assert.Equal(t, Message{5, 100}, m)
	_, err = k.Recv(make([]byte, 4)).Wait(context.Background())
	require.ErrorIs(t, err, ErrCanceled)

	q := w.TagRecv(make([]byte, 10), 8, ^Tag(0))
	deliver(h.p, packet{wire.RTS, mine, 8, words("", 2<<32|2, 10)}, packet{wire.Data, mine, q.id, []byte("abc")},
		packet{wire.Cancel, mine, q.id, []byte{wire.CancelData}})
	_, err = q.Wait(context.Background())
	require.ErrorIs(t, err, ErrCanceled)
	for _, u := range w.t.matching.unexpected {
		assert.Zero(t, u)
	}
	assert.Zero(t, w.t.count.Value(cntProtocolError))
}

// A refusal ends the sender's request with the reason, in each state.
func TestRefused(t *testing.T) {
	h := newHandshake(t)
	for _, q := range []Request{h.match, h.rts, h.data} {
		deliver(h.p, packet{wire.Reject, mine, q.id, append([]byte{byte(ucs.Rejected)}, "no room \xff"...)})
		require.True(t, q.Done())
		require.ErrorIs(t, q.Err(), ErrRejected)
		require.ErrorContains(t, q.Err(), "no room ?")
		var op *OpError
		require.ErrorAs(t, q.Err(), &op)
		assert.NotEmpty(t, op.Peer)
	}
}

// An answer that finds no room goes before the messages that wait.
func TestAnswersAreUrgent(t *testing.T) {
	h := newHandshake(t)
	w := h.p.worker()
	lane := w.t.eps[1].lane
	e := w.t.handle(1)
	var waiting []uct.Token
	for i := range 3 {
		waiting = append(waiting, uct.Token(e.TagSendWith(make([]byte, 12), Tag(i), Opts{Flags: ForceEager}).id))
	}
	q := w.TagRecv(make([]byte, 10), 6, ^Tag(0)) // asks for what was kept
	require.Equal(t, 5, w.t.lanes[lane].pending)
	h.pending.sent = nil
	h.pending.room = 1
	require.Equal(t, 0, h.p.HandlePending(waiting), "there was room for the answer alone")
	require.Len(t, h.pending.sent, 1)
	require.Equal(t, wire.RTR, h.pending.sent[0].id)
	h.pending.room = 100
	require.Equal(t, 3, h.p.HandlePending(waiting))
	require.Len(t, h.pending.sent, 4)
	q.Cancel()
	q.Drop()
	h.data.Cancel()
	require.Zero(t, w.t.lanes[lane].pending)
}
