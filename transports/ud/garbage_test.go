package ud

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// inject has n take in a datagram as if it came from queue pair src.
func (n *node) inject(b []byte, src verbs.QPN) {
	n.EnterWait()
	defer n.Leave()
	if len(n.spareSlots) == 0 {
		return
	}
	slot := n.spareSlots[len(n.spareSlots)-1]
	n.spareSlots = n.spareSlots[:len(n.spareSlots)-1]
	buf := n.rx.Bytes(slot)[grhLen:]
	b = b[:min(len(b), len(buf))]
	copy(buf, b)
	n.processRecvs([]verbs.WC{{ID: uint64(slot), Len: uint32(grhLen + len(b)), SrcQP: src}})
}

// spareBuffers takes a few receive buffers of n's out of use, for inject.
func (n *node) spareBuffers() {
	n.EnterWait()
	for len(n.spareSlots) < 16 && len(n.freeRecvs) > 0 {
		last := len(n.freeRecvs) - 1
		n.spareSlots, n.freeRecvs = append(n.spareSlots, n.freeRecvs[last]), n.freeRecvs[:last]
	}
	n.Leave()
}

// TestGarbage: whatever comes is passed over, or fails the flow that it names at
// most; a flow of somebody else goes on.
func TestGarbage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 9))
	ns := nodes(t, inproc(), 3)
	a, b, c := ns[0], ns[1], ns[2]
	p := newPair(t, []*node{a, b})
	other := connect(t, c, b)
	b.onAM = func(d *uct.Desc) {
		if d.Header == 77 {
			p.n++
		}
	}
	until(t, func() bool { return other.AMUint64(1, 77, 1) == ucs.OK }, c, b)
	until(t, func() bool { return p.n == 1 }, c, b)
	until(t, func() bool {
		b.spareBuffers()
		for range 5 {
			body := make([]byte, rnd.IntN(120))
			for i := range body {
				body[i] = byte(rnd.Uint32())
			}
			if len(body) > arq.HeaderLen && rnd.IntN(2) == 0 { // of a flow that is there
				r := receivers(b)
				if len(r) > 0 {
					f := uint32(r[0].Local)
					body[1], body[2], body[3] = byte(f), byte(f>>8), byte(f>>16)
				}
			}
			b.inject(body, a.self.QPN)
		}
		if p.n < 3000 && other.AMUint64(1, 77, 1) != ucs.OK {
			return false
		}
		return p.n >= 3000
	}, a, b, c)
	require.Empty(t, c.fails)
	require.Positive(t, b.counter("garbage"))
}

func FuzzParseAddress(f *testing.F) {
	ns := nodes(f, inproc(), 1)
	f.Add(ns[0].self.appendBody(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a address
		if a.parseBody(b) != nil {
			return
		}
		if b[2] == 0 { // else optional features
			require.Equal(t, b, a.appendBody(nil))
		}
		var again address
		require.NoError(t, again.parseBody(a.appendBody(nil)))
		require.Equal(t, a, again)
	})
}
