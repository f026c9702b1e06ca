package ucp

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// payload makes a payload of 8-byte words and further bytes.
func payload(tail string, ws ...uint64) []byte {
	var b []byte
	for _, w := range ws {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return append(b, tail...)
}

// swOwner is a worker with memory between two guards, and what it answers.
type swOwner struct {
	p    *workerIface
	r    *recorder
	all  []byte
	m    *MemHandle
	key  uint64
	base uint64
}

func newSWOwner(t testing.TB) *swOwner {
	t.Helper()
	wi := newPort(t)
	o := &swOwner{p: wi, all: make([]byte, 96)}
	var err error
	o.m, err = wi.t.ctx.Register(o.all[32:64:64], MemConfig{})
	require.NoError(t, err)
	o.key, o.base = uint64(o.m.emul.key), o.m.base
	e, err := wi.worker().NewEndpoint(wi.worker().Address(), EndpointConfig{Eager: true})
	require.NoError(t, err)
	l := &wi.t.lanes[wi.t.eps[uint32(e.id)].lane]
	o.r = &recorder{Endpoint: l.ep}
	l.ep = o.r
	deliver(wi, packet{wire.Peer, 1, 0, wi.worker().Address()})
	return o
}

// untouched reports whether the guards are.
func (o *swOwner) untouched() bool {
	return bytes.Count(o.all[:32], []byte{0}) == 32 && bytes.Count(o.all[64:], []byte{0}) == 32
}

// A request that no requester sends fails its source, and nothing is written.
func TestSoftwareGarbage(t *testing.T) {
	for _, c := range []struct {
		name string
		p    func(o *swOwner) packet
	}{
		{"put without data", func(o *swOwner) packet { return packet{wire.Put, 1, o.base, payload("", o.key)} }},
		{"put without key", func(o *swOwner) packet { return packet{wire.Put, 1, o.base, []byte("short")} }},
		{"empty put", func(o *swOwner) packet { return packet{wire.Put, 1, o.base, nil} }},
		{"put of a stranger", func(o *swOwner) packet { return packet{wire.Put, 2, o.base, payload("x", o.key)} }},
		{"get of nothing", func(o *swOwner) packet { return packet{wire.Get, 1, o.base, payload("", o.key, 1, 0)} }},
		{"get of too much", func(o *swOwner) packet { return packet{wire.Get, 1, o.base, payload("", o.key, 1, emulMaxPiece+1)} }},
		{"short get", func(o *swOwner) packet { return packet{wire.Get, 1, o.base, payload("1234567", o.key, 1)} }},
		{"long get", func(o *swOwner) packet { return packet{wire.Get, 1, o.base, payload("x", o.key, 1, 8)} }},
		{"get of a stranger", func(o *swOwner) packet { return packet{wire.Get, 2, o.base, payload("", o.key, 1, 8)} }},
		{"short atomic", func(o *swOwner) packet { return packet{wire.AtomicRequest, 1, o.base, payload("\x00", o.key, 1, 1, 1)} }},
		{"long atomic", func(o *swOwner) packet {
			return packet{wire.AtomicRequest, 1, o.base, payload("\x00\x08\x00", o.key, 1, 1, 1)}
		}},
		{"unknown atomic", func(o *swOwner) packet {
			return packet{wire.AtomicRequest, 1, o.base, payload("\x06\x08", o.key, 1, 1, 1)}
		}},
		{"atomic of 0 bytes", func(o *swOwner) packet {
			return packet{wire.AtomicRequest, 1, o.base, payload("\x00\x00", o.key, 1, 1, 1)}
		}},
		{"atomic of 16 bits", func(o *swOwner) packet {
			return packet{wire.AtomicRequest, 1, o.base, payload("\x00\x02", o.key, 1, 1, 1)}
		}},
		{"unaligned atomic", func(o *swOwner) packet {
			return packet{wire.AtomicRequest, 1, o.base + 4, payload("\x00\x08", o.key, 1, 1, 1)}
		}},
		{"unaligned atomic of 32 bits", func(o *swOwner) packet {
			return packet{wire.AtomicRequest, 1, o.base + 2, payload("\x00\x04", o.key, 1, 1, 1)}
		}},
		{"short flush", func(*swOwner) packet { return packet{wire.Flush, 1, 0, []byte("short")} }},
		{"flush of a stranger", func(*swOwner) packet { return packet{wire.Flush, 2, 0, payload("", 1)} }},
		{"data that nobody asked for", func(*swOwner) packet { return packet{wire.GetReply, 1, 1<<32 | 1, []byte("data")} }},
		{"answer to nothing", func(*swOwner) packet { return packet{wire.Reply, 1, 1<<32 | 1, payload("", 1, 0)} }},
		{"answer without id", func(*swOwner) packet { return packet{wire.Reply, 1, 0, payload("", 1, 0)} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newSWOwner(t)
			deliver(o.p, c.p(o))
			assert.Equal(t, uint64(1), o.p.t.count.Value(cntProtocolError))
			assert.True(t, o.untouched())
			assert.Equal(t, make([]byte, 32), o.m.Bytes())
		})
	}
}

// An answer that does not fit what was asked for fails its source.
func TestSoftwareWrongAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		kind  emulKind
		id    uct.AMID
		data  []byte
		wrong bool
	}{
		{"all of the data", emulGet, wire.GetReply, []byte("12345678"), false},
		{"its beginning", emulGet, wire.GetReply, []byte("1"), false},
		{"too much data", emulGet, wire.GetReply, []byte("123456789"), true},
		{"no data", emulGet, wire.GetReply, nil, true},
		{"well without data", emulGet, wire.Reply, payload("", 0, 0), true},
		{"refused", emulGet, wire.Reply, payload("", 0, uint64(ucs.RemoteAccess)), false},
		{"refused for another reason", emulGet, wire.Reply, payload("", 0, uint64(ucs.PeerFailed)), true},
		{"status beyond a byte", emulFetch, wire.Reply, payload("", 0, uint64(ucs.RemoteAccess)|1<<32), true},
		{"word", emulGetWord, wire.GetReply, []byte("12345678"), false},
		{"too long a word", emulGetWord, wire.GetReply, []byte("123456789"), true},
		{"value", emulFetch, wire.Reply, payload("", 7, 0), false},
		{"half a value", emulFetch, wire.Reply, payload("", 7), true},
		{"data for a value", emulFetch, wire.GetReply, []byte("12345678"), true},
		{"flushed", emulSync, wire.Reply, payload("", 0, 0), false},
		{"data for a flush", emulSync, wire.GetReply, []byte("1"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newSWOwner(t)
			w := o.p.worker()
			id := w.t.emulLane(1).addOp(emulOp{kind: c.kind, left: 8})
			deliver(o.p, packet{c.id, 1, id, c.data})
			assert.Equal(t, c.wrong, w.t.count.Value(cntProtocolError) == 1)
			if len(c.data) == 1 && !c.wrong {
				deliver(o.p, packet{c.id, 1, id, []byte("2345678")}) // the rest
				assert.Zero(t, w.t.count.Value(cntProtocolError))
			}
			if !c.wrong && len(c.data) >= 8 {
				deliver(o.p, packet{c.id, 1, id, c.data}) // once more: it has crossed the end
				assert.Zero(t, w.t.count.Value(cntProtocolError))
				assert.Equal(t, uint64(1), w.t.count.Value(cntStale))
			}
		})
	}
}

// What a get reads does not change by what comes behind it, though its answer has
// to wait for room.
func TestSoftwareGetIsASnapshot(t *testing.T) {
	o := newSWOwner(t)
	copy(o.m.Bytes(), "before")
	stuck := &stuckEndpoint{recorder: o.r, stuck: true}
	o.p.t.lanes[1].ep = stuck
	deliver(o.p,
		packet{wire.Get, 1, o.base, payload("", o.key, 77, 6)},
		packet{wire.Put, 1, o.base, payload("after!", o.key)},
		packet{wire.Get, 1, o.base, payload("", o.key, 78, 6)},
		packet{wire.Flush, 1, 0, payload("", 79)})
	require.Empty(t, o.r.sent)
	require.Equal(t, "after!", string(o.m.Bytes()[:6]))
	stuck.stuck = false
	require.Equal(t, len(stuck.waits), o.p.HandlePending(stuck.waits))
	assert.Equal(t, []packet{
		{id: wire.GetReply, hdr: 77, data: []byte("before")},
		{id: wire.GetReply, hdr: 78, data: []byte("after!")},
		{id: wire.Reply, hdr: 79, data: payload("", 0, 0)},
	}, o.r.sent)
	assert.Zero(t, o.p.t.pool.Allocated)
	stuck.waits = nil
}

// stuckEndpoint has no room while it is stuck.
type stuckEndpoint struct {
	*recorder
	stuck bool
	waits []uct.Token
}

func (s *stuckEndpoint) ReserveAM(id uct.AMID, hdr uint64, n int) ([]byte, uct.Status) {
	if s.stuck {
		return nil, ucs.NoResource
	}
	return s.recorder.ReserveAM(id, hdr, n)
}

func (s *stuckEndpoint) PendingAdd(t uct.Token) uct.Status {
	s.waits = append(s.waits, t)
	return ucs.OK
}

// The owner's answers, byte by byte as in docs/wire/ucp.md.
func TestSoftwareAnswers(t *testing.T) {
	o := newSWOwner(t)
	copy(o.m.Bytes(), "\x05")
	denied := uint64(ucs.RemoteAccess)
	for _, c := range []struct {
		p    packet
		want []packet
	}{
		{packet{wire.AtomicRequest, 1, o.base, payload("\x00\x08", o.key, 9, 2, 0)}, []packet{{id: wire.Reply, hdr: 9, data: payload("", 5, 0)}}},
		{packet{wire.AtomicRequest, 1, o.base, payload("\x00\x04", o.key, 0, 1, 0)}, nil},
		{packet{wire.AtomicRequest, 1, o.base, payload("\x05\x08", o.key, 9, 1, 8)}, []packet{{id: wire.Reply, hdr: 9, data: payload("", 8, 0)}}},
		{packet{wire.Get, 1, o.base, payload("", o.key, 9, 2)}, []packet{{id: wire.GetReply, hdr: 9, data: []byte("\x01\x00")}}},
		{packet{wire.Flush, 1, 0, payload("", 9)}, []packet{{id: wire.Reply, hdr: 9, data: payload("", 0, 0)}}},
		// What the key does not allow.
		{packet{wire.Get, 1, o.base + 31, payload("", o.key, 9, 2)}, []packet{{id: wire.Reply, hdr: 9, data: payload("", 0, denied)}}},
		{packet{wire.AtomicRequest, 1, o.base + 32, payload("\x00\x08", o.key, 9, 2, 0)}, []packet{{id: wire.Reply, hdr: 9, data: payload("", 0, denied)}}},
		{packet{wire.Put, 1, o.base + 30, payload("abc", o.key)}, nil},
		{packet{wire.Flush, 1, 0, payload("", 9)}, []packet{{id: wire.Reply, hdr: 9, data: payload("", 0, denied)}}},
		{packet{wire.Flush, 1, 0, payload("", 9)}, []packet{{id: wire.Reply, hdr: 9, data: payload("", 0, 0)}}},
		{packet{wire.AtomicRequest, 1, o.base, payload("\x00\x08", o.key^1<<30, 0, 1, 0)}, nil},
		{packet{wire.Flush, 1, 0, payload("", 9)}, []packet{{id: wire.Reply, hdr: 9, data: payload("", 0, denied)}}},
	} {
		o.r.sent = nil
		deliver(o.p, c.p)
		assert.Equal(t, c.want, o.r.sent)
	}
	assert.Zero(t, o.p.t.count.Value(cntProtocolError))
	assert.True(t, o.untouched())
}

// Whatever comes, nothing panics, nothing beside the memory is written, and the
// worker closes.
func FuzzSoftware(f *testing.F) {
	f.Add([]byte{20, 0, 3, 0, 'a', 'b'}, uint8(0))
	f.Add([]byte{21, 4, 16, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 23, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0}, uint8(1))
	f.Add(slices.Concat([]byte{22, 0, 26}, payload("\x05\x04", 1, 2, 3), []byte{24, 0, 3, 'a', 'b', 'c', 25, 0, 16}, payload("", 1, 0)), uint8(2))
	f.Fuzz(func(t *testing.T, in []byte, mode uint8) {
		o := newSWOwner(t)
		w := o.p.worker()
		e := w.t.emulLane(1)
		ids := []uint64{0, 1<<32 | 1, math.MaxUint64}
		for k := range emulSync + 1 {
			ids = append(ids, e.addOp(emulOp{kind: k, left: 8}))
		}
		key := o.key
		if mode%3 == 1 {
			require.NoError(t, o.m.Close())
		}
		for len(in) >= 3 {
			id, n := uct.AMID(in[0]%10)+18, min(int(in[2]), len(in)-3)
			data, hdr := append([]byte(nil), in[3:3+n]...), ids[int(in[1])%len(ids)]
			if id >= wire.Put && id <= wire.AtomicRequest {
				hdr = o.base + uint64(in[1]) - 16
				if mode%3 != 2 {
					data = append(payload("", key), data...)
				}
			}
			deliver(o.p, packet{id, uint32(in[1]%2) + 1, hdr, data})
			in = in[3+n:]
		}
		assert.True(t, o.untouched())
		w.Progress()
		for s := range uint32(3) {
			o.p.HandleFailure(uct.Failure{RxConn: s})
		}
		w.t.failLane(1, errProtocol) // who does not answer
		require.NoError(t, w.Close())
		for i := range w.t.emul.ops {
			assert.False(t, w.t.emul.ops[i].live)
		}
	})
}
