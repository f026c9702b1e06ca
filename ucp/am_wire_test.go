package ucp

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/uct"
)

// announce makes the payload of an announced active message.
func announce(id, n uint64, header string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, id)
	return append(binary.LittleEndian.AppendUint64(b, n), header...)
}

// Active messages that make no sense fail their source alone.
func TestAMGarbage(t *testing.T) {
	const h4 = 4 << 16 // a header of 4 bytes
	for _, tc := range []struct {
		name  string
		named bool // the source has said who it is
		ps    []packet
	}{
		{"header longer than the message", false, []packet{{id: wire.User, hdr: h4, data: []byte("abc")}}},
		{"header longer than allowed", false, []packet{{id: wire.User, hdr: (MaxAMHeader + 1) << 16, data: make([]byte, 1000)}}},
		{"unknown flag", false, []packet{{id: wire.User, hdr: 1 << 34}}},
		{"upper bits", false, []packet{{id: wire.User, hdr: 1 << 40}}},
		{"fetched first, and yet whole", true, []packet{{id: wire.User, hdr: wire.WordPrefetch}}},
		{"nobody to answer", false, []packet{{id: wire.User, hdr: wire.WordReply}}},
		{"first fragment without length", false, []packet{{id: wire.UserFirst, data: []byte("short")}}},
		{"first fragment without data", false, []packet{{id: wire.UserFirst, hdr: h4, data: first(9, "head")}}},
		{"first fragment that is the whole", false, []packet{{id: wire.UserFirst, hdr: h4, data: first(1, "headx")}}},
		{"first fragment of nobody who wants an answer", false, []packet{{id: wire.UserFirst, hdr: wire.WordReply, data: first(9, "x")}}},
		{"length beyond the address space", false, []packet{{id: wire.UserFirst, data: first(math.MaxInt, "x")}}},
		{"two first fragments", false, []packet{{id: wire.UserFirst, data: first(9, "a")}, {id: wire.UserFirst, data: first(9, "a")}}},
		{"tag inside a message in fragments", false, []packet{{id: wire.UserFirst, data: first(9, "a")}, {id: wire.First, data: first(9, "a")}}},
		{"more than announced", false, []packet{{id: wire.UserFirst, data: first(3, "a")}, {id: wire.Next, hdr: 1, data: []byte("bcd")}}},
		{"wrong message number", false, []packet{{id: wire.UserFirst, data: first(3, "a")}, {id: wire.Next, hdr: 2, data: []byte("b")}}},
		{"announced by nobody", false, []packet{{id: wire.UserRTS, data: announce(1<<32|1, 9, "")}}},
		{"announcement cut", true, []packet{{id: wire.UserRTS, data: announce(1<<32|1, 9, "")[:15]}}},
		{"announcement without its header", true, []packet{{id: wire.UserRTS, hdr: h4, data: announce(1<<32|1, 9, "hea")}}},
		{"announcement with data", true, []packet{{id: wire.UserRTS, data: announce(1<<32|1, 9, "x")}}},
		{"announcement beyond the address space", true, []packet{{id: wire.UserRTS, data: announce(1<<32|1, 1<<63, "")}}},
		{"fetched first, and too long for that", true, []packet{{id: wire.UserRTS, hdr: wire.WordPrefetch, data: announce(1<<32|1, maxPrefetch+1, "")}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wi := newPort(t)
			w := wi.worker()
			var got []string
			require.NoError(t, w.HandleAM(0, func(m *AM) { got = append(got, string(m.Data)) }))
			if tc.named {
				deliver(wi, packet{wire.Peer, 5, 0, w.t.address})
			}
			for i := range tc.ps {
				tc.ps[i].src = 5
			}
			deliver(wi, tc.ps...)
			assert.Equal(t, uint64(1), w.t.count.Value(cntProtocolError))
			assert.Empty(t, got)
			assert.Zero(t, w.t.pool.Allocated)

			deliver(wi, packet{wire.User, 5, 0, []byte("bad")}, packet{wire.User, 6, 0, []byte("good")})
			assert.Equal(t, []string{"good"}, got)
			assert.Equal(t, uint64(2), w.t.count.Value(cntProtocolError))
		})
	}
}

// A message in fragments that stops gives its memory back; one that nobody
// handles takes none.
func TestAMStops(t *testing.T) {
	wi := newPort(t)
	require.NoError(t, wi.worker().HandleAM(0, func(*AM) { t.Error("handled") }))
	deliver(wi, packet{wire.UserFirst, 1, 0, first(1<<40, "a")})
	assert.Positive(t, wi.t.pool.Allocated)
	assert.LessOrEqual(t, wi.t.pool.Allocated, maxPrealloc, "a length on its own takes little")
	wi.HandleFailure(uct.Failure{RxConn: 1})
	assert.Zero(t, wi.t.pool.Allocated)
	deliver(wi, packet{wire.UserFirst, 2, 0, first(9, "a")}, packet{wire.Next, 2, 1, nil})
	assert.Zero(t, wi.t.pool.Allocated, "given up")
	deliver(wi, packet{wire.UserFirst, 2, 77, first(9, "a")})
	assert.Zero(t, wi.t.pool.Allocated)
	deliver(wi, packet{wire.Next, 2, 2, make([]byte, 8)})
	assert.Equal(t, uint64(1), wi.t.count.Value(cntUnhandled))
	assert.Zero(t, wi.t.count.Value(cntProtocolError))
}

// Each id without a handler is logged once, until it had one again.
func TestAMUnknownIsLogged(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	c, err := Open(Config{Providers: []uct.Component{self.Component()}, Log: zap.New(core)})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(WorkerConfig{Mode: ThreadSingle})
	require.NoError(t, err)
	wi := w.t.ifaces[0]
	before := logs.Len()
	for range 3 {
		deliver(wi, packet{wire.User, 1, 7, nil}, packet{wire.User, 1, 65535, []byte("x")})
	}
	assert.Equal(t, before+2, logs.Len())
	assert.Equal(t, uint64(6), w.t.count.Value(cntUnhandled))
	require.NoError(t, w.HandleAM(7, func(*AM) {}))
	require.NoError(t, w.HandleAM(7, nil))
	deliver(wi, packet{wire.User, 1, 7, nil})
	assert.Equal(t, before+3, logs.Len())
}

// lender is an iface that lends its memory.
type lender struct {
	uct.Iface
	released []uint64
}

func (l *lender) Release(hs []uint64) { l.released = append(l.released, hs...) }

// Memory that the transport lends is kept without a copy and given back once.
func TestAMLent(t *testing.T) {
	wi := newPort(t)
	l := &lender{Iface: wi.iface}
	wi.iface = l
	var kept []RetainedAM
	require.NoError(t, wi.worker().HandleAM(1, func(m *AM) {
		require.True(t, m.CanRetain())
		if m.Header[0] == 'k' {
			kept = append(kept, m.Retain())
			require.Equal(t, kept[len(kept)-1], m.Retain(), "a second time")
		}
	}))
	mem := []byte("k-oneno-twok-three")
	ds := []uct.Desc{
		{Off: 0, Len: 5, Header: 1 | 1<<16, Handle: 11, RxConn: 1, ID: wire.User, Flags: uct.DescCanRetain},
		{Off: 5, Len: 6, Header: 1 | 1<<16, Handle: 12, RxConn: 1, ID: wire.User, Flags: uct.DescCanRetain},
		{Off: 11, Len: 7, Header: 1 | 1<<16, Handle: 13, RxConn: 1, ID: wire.User, Flags: uct.DescCanRetain},
	}
	for _, bad := range []bool{false, true} {
		kept, l.released = nil, nil
		if bad { // every message is looked at more closely
			deliver(wi, packet{9, 2, 0, nil})
		}
		require.Equal(t, uint64(0b101), wi.HandleAM(mem, ds))
		require.Equal(t, "-one", string(kept[0].Bytes()))
		mem[2] = 'X'
		require.Equal(t, "-Xne", string(kept[0].Bytes()), "no copy")
		mem[2] = 'o'
		require.Equal(t, "k", string(kept[1].Header()))
		kept[1].Release()
		kept[0].Release()
		wi.t.am.retainer.service()
		require.ElementsMatch(t, []uint64{11, 13}, l.released)
	}
	// Alone in its batch.
	kept = nil
	require.Equal(t, uint64(1), wi.HandleAM(mem, ds[:1]))
	kept[0].Release()
	wi.iface = l.Iface
}

// A kept message may only be kept by its handler.
func TestAMKeepLate(t *testing.T) {
	wi := newPort(t)
	var m *AM
	require.NoError(t, wi.worker().HandleAM(0, func(x *AM) { m = x }))
	deliver(wi, packet{wire.User, 1, 0, []byte("data")})
	assert.Zero(t, m.Retain())
	if race.Enabled {
		assert.Equal(t, -1, m.Len, "who retains the message is to notice")
		assert.Equal(t, poisonBytes[:], m.Data)
	}
}

// Random packets never panic; when their sources have ended and what was kept is
// released, nothing is left.
func FuzzAM(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0, 1, 1, 0, 0, 4, 'd', 'a', 't', 'a'})
	f.Add([]byte{0, 1, 0, 0, 0, 2, 1, 0, 0, 12, 9, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c', 'd', 4, 1, 1, 0, 0, 5, 'e', 'f', 'g', 'h', 'i'})
	f.Add([]byte{0, 1, 0, 0, 0, 3, 1, 0, 0, 16, 1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 1, 1, 0, 0, 4, 1, 2, 3, 4})
	f.Add([]byte{0, 1, 0, 0, 0, 3, 1, 0, 0x20, 16, 1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 6, 1, 1, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		wi := newPort(t)
		w := wi.worker()
		r := rand.New(rand.NewPCG(2, uint64(len(in))))
		var kept []RetainedAM
		for id := range AMID(3) {
			require.NoError(t, w.HandleAM(id, func(m *AM) {
				if r.IntN(2) == 0 {
					kept = append(kept, m.Retain())
				}
			}))
		}
		ids := [...]uct.AMID{wire.Peer, wire.User, wire.UserFirst, wire.UserRTS, wire.Next, wire.Data, wire.Cancel, wire.RTR, wire.Reject, wire.Abort}
		for len(in) >= 6 {
			n := min(int(in[5]), len(in)-6)
			// id, length of the header, flags
			hdr := uint64(in[2]) | uint64(in[3])<<16 | uint64(in[4])<<28
			k := packet{ids[int(in[0])%len(ids)], uint32(in[1]%3) + 1, hdr, in[6 : 6+n]}
			if k.id == wire.Peer {
				k.hdr, k.data = 0, w.t.address
			}
			deliver(wi, k)
			if len(kept) > 0 {
				x := kept[0]
				kept = kept[1:]
				switch r.IntN(4) {
				case 0:
					x.RecvInto(make([]byte, r.IntN(20))).Drop()
				case 1:
					x.Refuse(errors.New("no"))
				default:
					x.Release()
				}
			}
			in = in[6+n:]
		}
		for s := range uint32(4) {
			wi.HandleFailure(uct.Failure{RxConn: s})
		}
		for _, x := range kept {
			x.Release()
		}
		w.t.am.retainer.service()
		assert.Zero(t, w.t.pool.Allocated)
		assert.Zero(t, w.t.am.retainer.live)
		assert.Nil(t, w.t.am.retainer.rndvs)
		assert.Empty(t, w.t.am.prefetch.queued)
		assert.Empty(t, w.t.am.prefetch.active)
	})
}

// The bytes of each form, as docs/wire/ucp.md has them.
func TestAMWireGolden(t *testing.T) {
	wi, rec, e := record(t)
	wi.t.lanes[wi.t.eps[1].lane].maxBcopy = 32
	hello := []byte("hello, world, here is an active message")
	require.Zero(t, e.AMSend(0x0102, nil, []byte("data")))
	require.Zero(t, e.AMSend(0x0102, []byte("hd"), []byte("data")))
	require.Zero(t, e.AMSend(0x0102, []byte("hd"), hello))
	r := e.AMSendWith(3, []byte("h"), []byte("data"), Opts{Flags: ForceRendezvous | WantReply})
	require.False(t, r.Done())
	assert.Equal(t, []packet{
		{id: 13, hdr: 0x0102, data: []byte("data")},
		{id: 13, hdr: 0x2_0102, data: []byte("hddata")},
		{id: 14, hdr: 0x2_0102, data: []byte("\x27\x00\x00\x00\x00\x00\x00\x00hd" + string(hello[:22]))},
		{id: 3, hdr: 1, data: hello[22:]},
		{id: 15, hdr: 0x1_0001_0003, data: announce(r.id, 4, "h")},
	}, rec.sent)
	r.Cancel()
}
