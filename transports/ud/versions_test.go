package ud

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/ucs/protocol/protocoltest"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// bytesOf returns the datagram of h and a body.
func bytesOf(h arq.Header, body []byte) []byte {
	b := make([]byte, arq.HeaderLen)
	h.Put(b)
	return append(b, body...)
}

// TestConnectGolden: a Connect, an Accept and a Reject of this version are kept.
func TestConnectGolden(t *testing.T) {
	type message struct {
		h    arq.Header
		from address
	}
	a := addressOf(nic.Address{
		Port:   nic.PortAddress{MTU: verbs.MTU4096, GID: verbs.GID{0: 0xfd, 15: 1}, LID: 0x8181, ScopeID: 7},
		Worker: uct.UUID{9, 8, 7}, QPN: 0x515253,
	})
	target := arq.NewMux(&arq.Config{}, 0x1122334455667788)
	connect := arq.Header{A: 0xCAFEBABE<<32 | 5<<8 | uint64(arq.Control)<<6 | uint64(arq.Connect), B: versionWord(0), C: target.Name}
	accept, _ := target.HandleConnect(0, &connect, 32, 0)
	accept.C = versionWord(0)
	reject := arq.RejectHeader(&connect)
	reject.C = versionWord(1 << 2)
	for name, g := range map[string]struct {
		message
		at int
	}{"connect": {message{connect, a}, 8}, "accept": {message{h: accept}, 16}} {
		var body []byte
		if name == "connect" {
			body = g.from.appendBody(nil)
		}
		word := func(h *arq.Header) *uint64 {
			if name == "connect" {
				return &h.B
			}
			return &h.C
		}
		protocoltest.Run(t, protocoltest.Golden{
			Format: &connFormat, File: name, Version: g.at, Features: g.at + 1, Bytes: bytesOf(g.h, body), Want: g.message,
			Decode: func(b []byte) (any, error) {
				b = append(b, make([]byte, max(0, arq.HeaderLen-len(b)))...) // every packet has a whole header
				h, ok := arq.Parse(b)
				require.True(t, ok)
				w := word(&h)
				if err := checkVersion(*w); err != nil {
					return nil, err
				}
				*w &^= 0xf0 << 8 // optional features
				m := message{h: h}
				if name == "connect" {
					require.NoError(t, m.from.parseBody(b[arq.HeaderLen:]))
				}
				return m, nil
			},
		})
	}
	err := checkVersion(reject.C)
	require.EqualError(t, err, "connection message of ud of version 1 requires feature 2, which the peer (version 1) does not know")
}

// TestOtherVersion: a Connect that cannot be read gets a Reject, and the initiator's endpoint
// fails at once, by an error that names both versions, or the feature.
func TestOtherVersion(t *testing.T) {
	for name, c := range map[string]struct {
		connect uint64 // word B of the Connect; 0: none is sent
		reply   uint64 // word C of the reply, if none is sent
		id      uint8
		want    string
	}{
		"Connect requires a feature": {versionWord(0) | 1<<(8+3), 0, 0, "connection message of ud of version 1 requires feature 3, which the peer (version 1) does not know"},
		"Reject of a later version":  {0, versionWord(0) + 1, arq.Reject, "connection message of ud has version 2, this program knows version 1"},
		"Accept of a later version":  {0, versionWord(0) + 1, arq.Accept, "connection message of ud has version 2, this program knows version 1"},
		"Accept requires a feature":  {0, versionWord(0) | 1<<8, arq.Accept, "connection message of ud of version 1 requires feature 0, which this program (version 1) does not know"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := nodes(t, loopback(), 2)
			a, b := ns[0], ns[1]
			e := connect(t, a, b)
			var h arq.Header
			a.inside(func() { h = a.mux.ConnectHeader(e.flow, b.self.name) })
			if c.connect != 0 {
				a.inside(func() {
					h.B = c.connect
					a.sendControl(e.p, &h, a.self.appendBody(nil))
					a.flushPosts()
				})
				until(t, func() bool { return len(a.fails) == 1 }, a, b)
				require.EqualValues(t, 1, b.counter("refused"))
				require.Empty(t, receivers(b))
				require.Empty(t, b.peersByName)
			} else {
				b.inside(func() { // b replies nothing
					reply := arq.RejectHeader(&h)
					reply.A, reply.C = reply.A&^0x1f|uint64(c.id), c.reply
					a.inside(func() { a.handleControl(&reply, nil, &verbs.WC{SrcQP: b.self.QPN}) })
					until(t, func() bool { return len(a.fails) == 1 }, a)
				})
			}
			require.ErrorIs(t, a.fails[0].Err, ucs.ErrPeerFailed)
			require.ErrorIs(t, a.fails[0].Err, ucs.ErrUnsupported)
			require.ErrorContains(t, a.fails[0].Err, c.want)
		})
	}
	t.Run("Connect of a later version", func(t *testing.T) {
		ns := nodes(t, loopback(), 2)
		a, b := ns[0], ns[1]
		a.inside(func() {
			a.askAs(t, b, a.self, 5, versionWord(0)+1)
			until(t, func() bool { return b.counter("refused") == 1 }, b)
			a.askAs(t, b, a.self, 5, versionWord(0)|uint64(^protocol.Required)<<8)
			until(t, func() bool { return b.counter("accepted") == 1 }, b)
		})
	})
}
