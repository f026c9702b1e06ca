package ucp

import (
	"context"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// The example of docs/wire/ucp.md: 19 bytes by rendezvous.
func TestWireRendezvous(t *testing.T) {
	wi, r, e := recordKnown(t)
	s := e.TagSendWith([]byte("hello, world, again"), 0x1234, Opts{Flags: ForceRendezvous})
	require.False(t, s.Done())
	require.Len(t, r.sent, 1)
	rts := r.sent[0]
	assert.Equal(t, wire.RTS, rts.id)
	assert.Equal(t, uint64(0x1234), rts.hdr)
	assert.Equal(t, words("", s.id, 19), rts.data)

	r.sent = nil
	got := make([]byte, 32)
	q := wi.worker().TagRecv(got, 0x1234, ^Tag(0))
	rts.src = mine
	deliver(wi, rts)
	require.Len(t, r.sent, 1)
	rtr := r.sent[0]
	assert.Equal(t, wire.RTR, rtr.id)
	assert.Equal(t, s.id, rtr.hdr)
	assert.Equal(t, words("", q.id, 19), rtr.data)

	r.sent = nil
	rtr.src = mine
	deliver(wi, rtr)
	require.True(t, s.Done())
	require.Len(t, r.sent, 2)
	for i, text := range []string{"68656c6c6f2c20776f726c642c206167", "61696e"} {
		assert.Equal(t, wire.Data, r.sent[i].id)
		assert.Equal(t, q.id, r.sent[i].hdr)
		assert.Equal(t, text, hex.EncodeToString(r.sent[i].data))
		require.False(t, q.Done())
		r.sent[i].src = mine
		deliver(wi, r.sent[i])
	}
	m, err := q.Wait(context.Background())
	require.NoError(t, err)
	assert.Equal(t, Message{0x1234, 19}, m)
	assert.Equal(t, "hello, world, again", string(got[:19]))
}

func TestWireSync(t *testing.T) {
	wi, r, e := recordKnown(t)
	s := e.TagSendSync([]byte("sync"), 7)
	require.Len(t, r.sent, 1)
	assert.Equal(t, packet{id: wire.Sync, hdr: 7, data: words("sync", s.id)}, r.sent[0])
	msg := r.sent[0]
	msg.src, r.sent = mine, nil
	deliver(wi, msg)
	require.Empty(t, r.sent, "nobody has matched it")
	wi.worker().TagRecv(make([]byte, 4), 7, ^Tag(0)).Drop()
	require.Len(t, r.sent, 1)
	assert.Equal(t, wire.SyncAck, r.sent[0].id)
	assert.Equal(t, s.id, r.sent[0].hdr)
	require.False(t, s.Done())
	deliver(wi, packet{id: wire.SyncAck, src: mine, hdr: s.id})
	require.True(t, s.Done())
}

// An address comes in as many pieces as it needs.
func TestWirePeer(t *testing.T) {
	wi := newPort(t)
	a := wi.worker().Address()
	for i := range a {
		deliver(wi, packet{wire.Peer, mine, uint64(len(a) - i - 1), a[i : i+1]})
		assert.Equal(t, i+1 == len(a), wi.rxConn(mine).peer != 0)
	}
	deliver(wi, packet{wire.Peer, mine, 0, a})
	assert.False(t, wi.rxConn(mine).failed, "the same again")
	assert.Equal(t, 1, wi.t.peers.Len())
	wi.HandleFailure(uct.Failure{RxConn: mine})
	assert.Zero(t, wi.t.peers.Len())
}

// What a peer names must be what it was given, and in the right state; else that
// source fails, alone.
func TestForeignIDs(t *testing.T) {
	type of func(h *handshake) packet
	named := func(id uct.AMID, data []byte) func(func(h *handshake) uint64) of {
		return func(what func(h *handshake) uint64) of {
			return func(h *handshake) packet { return packet{id: id, hdr: what(h), data: data} }
		}
	}
	ack, rtr := named(wire.SyncAck, nil), named(wire.RTR, words("", 1<<32|1, 1))
	data, refuse := named(wire.Data, []byte("x")), named(wire.Reject, []byte{11, 'n', 'o'})
	stop := named(wire.Cancel, []byte{wire.CancelData})
	match := func(h *handshake) uint64 { return h.match.id }
	rts := func(h *handshake) uint64 { return h.rts.id }
	sent := func(h *handshake) uint64 { return h.data.id }
	fetch := func(h *handshake) uint64 { return h.fetch.id }
	future := func(h *handshake) uint64 { return h.rts.id + 1<<32 }
	free := func(*handshake) uint64 { return 1<<32 | 200 }
	beyond := func(*handshake) uint64 { return 1<<32 | 1<<20 }
	nothing := func(*handshake) uint64 { return 0 }
	for _, tc := range []struct {
		name  string
		src   uint32
		makes of
	}{
		{"acknowledge for another", another, ack(match)},
		{"ask for another", another, rtr(rts)},
		{"data for another", another, data(fetch)},
		{"refuse for another", another, refuse(match)},
		{"refuse an announcement for another", another, refuse(rts)},
		{"stop for another", another, stop(fetch)},
		{"acknowledge what was announced", mine, ack(rts)},
		{"acknowledge a receive", mine, ack(fetch)},
		{"ask for what is on its way", mine, rtr(sent)},
		{"ask for what was sent whole", mine, rtr(match)},
		{"ask for a receive", mine, rtr(fetch)},
		{"data for a send", mine, data(sent)},
		{"stop a send", mine, stop(sent)},
		{"an id to come", mine, ack(future)},
		{"an id never given", mine, rtr(free)},
		{"an id beyond all", mine, refuse(beyond)},
		{"no id", mine, data(nothing)},
		{"ask for more than there is", mine, named(wire.RTR, words("", 1<<32|1, 101))(rts)},
		{"more data than asked for", mine, named(wire.Data, make([]byte, 91))(fetch)},
		{"data without data", mine, named(wire.Data, nil)(fetch)},
		{"acknowledge with payload", mine, named(wire.SyncAck, []byte{1})(match)},
		{"ask without length", mine, named(wire.RTR, words("", 1))(rts)},
		{"refuse without status", mine, named(wire.Reject, nil)(rts)},
		{"refuse at length", mine, named(wire.Reject, make([]byte, 2+wire.MaxReason))(rts)},
		{"give up without saying what", mine, named(wire.Cancel, nil)(rts)},
		{"a key that was not asked for", mine, named(wire.Key, make([]byte, 30))(fetch)},
		{"a key that is none", mine, named(wire.Key, make([]byte, 9))(fetch)},
		{"take what was not lent", mine, named(wire.ReadDone, nil)(rts)},
		{"take with payload", mine, named(wire.ReadDone, []byte{1})(rts)},
		{"ask for the key of a receive", mine, named(wire.RTL, words("", 1<<32|1, 1))(fetch)},
		{"ask for the key of more than there is", mine, named(wire.RTL, words("", 1<<32|1, 101))(rts)},
		{"ask for the key of what is on its way", mine, named(wire.RTL, words("", 1<<32|1, 1))(sent)},
		{"ask for the key for another", another, named(wire.RTL, words("", 1<<32|1, 1))(rts)},
		{"take for another", another, named(wire.ReadDone, nil)(rts)},
		{"give up something else", mine, named(wire.Cancel, []byte{2})(rts)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHandshake(t)
			w := h.p.worker()
			k := tc.makes(h)
			k.src = tc.src
			deliver(h.p, k)
			assert.Equal(t, uint64(1), w.t.count.Value(cntProtocolError))
			assert.True(t, h.p.rxConn(tc.src).failed)
			if tc.src == another {
				for _, q := range []Request{h.match, h.rts, h.data, h.fetch.Request} {
					assert.False(t, q.Done(), "%v", q)
				}
				assert.Equal(t, 1, w.t.matching.unexpQueue.Len())
				deliver(h.p, packet{wire.SyncAck, mine, h.match.id, nil}, packet{wire.Data, mine, h.fetch.id, make([]byte, 90)})
				assert.True(t, h.match.Done())
				assert.True(t, h.fetch.Done())
				return
			}
			// Everything to and from that peer ended, with the reason.
			for _, q := range []Request{h.match, h.rts, h.data} {
				require.True(t, q.Done())
				require.ErrorIs(t, q.Err(), ErrPeerFailed)
				require.ErrorContains(t, q.Err(), "broke the protocol")
			}
			_, err := h.fetch.Wait(context.Background())
			require.ErrorContains(t, err, "broke the protocol")
			assert.Zero(t, w.t.matching.unexpQueue.Len())
		})
	}
}

// Announcements that break the protocol, and those of somebody unknown.
func TestBadAnnouncements(t *testing.T) {
	for _, tc := range []struct {
		name string
		k    packet
	}{
		{"short", packet{wire.RTS, mine, 1, words("", 1)}},
		{"long", packet{wire.RTS, mine, 1, words("x", 1, 1)}},
		{"beyond the address space", packet{wire.RTS, mine, 1, words("", 1, 1<<63)}},
		{"of nobody", packet{wire.RTS, 9, 1, words("", 1, 1)}},
		{"sync of nobody", packet{wire.Sync, 9, 1, words("x", 1)}},
		{"sync without id", packet{wire.Sync, mine, 1, []byte("short")}},
		{"throttle of nobody", packet{wire.FlowControl, 9, 1, nil}},
		{"throttle by half", packet{wire.FlowControl, mine, 2, nil}},
		{"acknowledgement of nobody", packet{wire.SyncAck, 9, 1<<32 | 1, nil}},
		{"an address that is none", packet{wire.Peer, 9, 0, []byte("nowhere")}},
		{"an address without end", packet{wire.Peer, 9, wire.MaxPeerAddress + 1, nil}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wi, _, _ := recordKnown(t)
			r := wi.worker().TagRecv(make([]byte, 8), 1, ^Tag(0))
			deliver(wi, tc.k)
			assert.Equal(t, uint64(1), wi.t.count.Value(cntProtocolError))
			assert.True(t, wi.rxConn(tc.k.src).failed)
			if r.Done() {
				_, err := r.Wait(context.Background())
				require.ErrorIs(t, err, ErrPeerFailed)
				return
			}
			r.Cancel()
			r.Drop()
		})
	}
}

// Messages that cross the end of what they name are dropped, and counted apart.
func TestLateMessages(t *testing.T) {
	h := newHandshake(t)
	w := h.p.worker()
	deliver(h.p,
		packet{wire.SyncAck, mine, h.ended, nil}, packet{wire.RTR, mine, h.ended, words("", 1<<32|1, 1)},
		packet{wire.Reject, mine, h.ended, []byte{11}}, packet{wire.Data, mine, h.ended, []byte("x")},
		packet{wire.RTL, mine, h.ended, words("", 1<<32|1, 1)}, packet{wire.Key, mine, h.ended, make([]byte, 30)},
		packet{wire.ReadDone, mine, h.ended, nil},
		packet{wire.Cancel, mine, h.ended, []byte{wire.CancelData}}, packet{wire.Cancel, mine, h.ended, []byte{wire.CancelRTS}})
	assert.Zero(t, w.t.count.Value(cntProtocolError))
	assert.Equal(t, uint64(8), w.t.count.Value(cntStale))
	for _, q := range []Request{h.match, h.rts, h.data, h.fetch.Request} {
		assert.False(t, q.Done(), "%v", q)
	}
}

// Each step of a rendezvous ends with its connection, once and with the reason.
func TestRendezvousLosesItsConnection(t *testing.T) {
	h := newHandshake(t)
	w := h.p.worker()
	k, ok := w.TagMprobe(6, ^Tag(0))
	require.True(t, ok)
	deliver(h.p, packet{wire.RTS, mine, 6, words("", h.kept+1, 100)})
	require.Equal(t, 1, w.t.matching.unexpQueue.Len())
	w.TagRecv(make([]byte, 9), 99, ^Tag(0)).Drop()
	reason := ErrPeerFailed
	lane := w.t.eps[1].lane
	h.p.HandleFailure(uct.Failure{Endpoint: w.t.lanes[lane].ep, RxConn: mine, Err: reason})
	for _, q := range []Request{h.match, h.rts, h.data} {
		require.True(t, q.Done())
		require.ErrorIs(t, q.Err(), ErrPeerFailed)
	}
	m, err := h.fetch.Wait(context.Background())
	require.ErrorIs(t, err, ErrPeerFailed)
	assert.Equal(t, Message{5, 100}, m)
	assert.Zero(t, w.t.matching.unexpQueue.Len())
	_, err = k.Recv(make([]byte, 8)).Wait(context.Background())
	require.ErrorIs(t, err, ErrPeerFailed)
	assert.Zero(t, w.t.lanes[lane].unacked)
	assert.Zero(t, w.t.lanes[lane].creditsUsed)
	for _, u := range w.t.matching.unexpected {
		assert.Zero(t, u)
	}
}

// Above the number of messages that may wait to be asked for, sends wait here, in
// their order, and what comes behind them waits too.
func TestOutstandingIsBounded(t *testing.T) {
	wi, r, e := recordKnown(t)
	w := wi.worker()
	w.t.maxCredits = 3
	var rs []Request
	t.Cleanup(func() { // else the close waits for what nobody answers
		for _, q := range rs {
			q.Cancel()
		}
	})
	for i := range 6 {
		rs = append(rs, e.TagSendWith(make([]byte, 50), Tag(i), Opts{Flags: ForceRendezvous}))
	}
	rs = append(rs, e.TagSend([]byte("eager"), 6), e.TagSend([]byte("too"), 7))
	flush := e.Flush()
	tags := func() (ts []uint64) {
		for _, k := range r.sent {
			if k.id == wire.RTS || k.id == wire.Eager {
				ts = append(ts, k.hdr)
			}
		}
		return ts
	}
	require.Equal(t, []uint64{0, 1, 2}, tags())
	rs[4].Cancel()
	deliver(wi, packet{wire.RTR, mine, rs[1].id, words("", 1<<32|9, 50)})
	require.Equal(t, []uint64{0, 1, 2, 3}, tags())
	rs[0].Cancel()
	require.Equal(t, []uint64{0, 1, 2, 3, 5, 6, 7}, tags())
	deliver(wi, packet{wire.Reject, mine, rs[5].id, []byte{byte(ucs.Rejected)}})
	require.ErrorIs(t, rs[5].Err(), ErrRejected)
	require.Equal(t, []uint64{0, 1, 2, 3, 5, 6, 7}, tags())
	require.True(t, rs[6].Done() && rs[7].Done())
	require.False(t, flush.Done())
	for _, i := range []int{2, 3} {
		deliver(wi, packet{wire.RTR, mine, rs[i].id, words("", 1<<32|9, 0)})
		require.True(t, rs[i].Done())
	}
	require.True(t, flush.Done())
	require.Zero(t, w.t.lanes[w.t.eps[1].lane].creditsUsed)
	require.Zero(t, e.TagSendUint64(1, 8), "the fast path is open again")
}

// Sends that wait for room go in the order of posting, whether they need a credit or
// not. One of them holds no credit before it is sent: the send before it needs it.
func TestHeldSendsKeepTheirTurn(t *testing.T) {
	wi, r, e := recordKnown(t)
	w := wi.worker()
	w.t.maxCredits = 1
	f := &full{recorder: r, room: 1}
	lane := w.t.eps[1].lane
	w.t.lanes[lane].ep = f
	var rs []Request
	post := func(q Request) {
		require.False(t, q.Done())
		rs = append(rs, q)
	}
	t.Cleanup(func() {
		for _, q := range rs {
			q.Cancel()
		}
	})
	post(e.TagSendSync(make([]byte, 4), 0))
	for i := range 2 {
		post(e.TagSend(make([]byte, 12), Tag(1+i)))
	}
	post(e.TagSendSync(make([]byte, 4), 3)) // no credit is left
	deliver(wi, packet{wire.SyncAck, mine, rs[0].id, nil})
	post(e.TagSendSync(make([]byte, 4), 4)) // one is left again, for the send before
	post(e.TagSend(make([]byte, 12), 5))
	tags := func() (ts []uint64) {
		for _, k := range r.sent {
			ts = append(ts, k.hdr)
		}
		return ts
	}
	f.room = 100
	for _, q := range rs[1:] { // the transport offers them one at a time
		require.Equal(t, 1, wi.HandlePending([]uct.Token{uct.Token(q.id)}))
	}
	require.Equal(t, []uint64{0, 1, 2, 3}, tags())
	deliver(wi, packet{wire.SyncAck, mine, rs[3].id, nil})
	require.Equal(t, []uint64{0, 1, 2, 3, 4, 5}, tags())
	require.Zero(t, w.t.lanes[lane].pending)
	require.Equal(t, uint32(1), w.t.lanes[lane].creditsUsed)
}
