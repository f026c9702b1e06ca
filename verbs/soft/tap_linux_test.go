package soft

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// seen is what a tap got.
type seen struct {
	sent   bool
	h      wire.Network
	packet []byte
}

// TestTap: each packet is seen alone, in order, whole and with the headers that
// its ICRC was made for.
func TestTap(t *testing.T) {
	var mu sync.Mutex
	var all []seen
	p := New(Config{Link: LinkUDP, Addr: localhost, Tap: func(sent bool, h *wire.Network, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, seen{sent, *h, append([]byte(nil), b...)})
	}})
	const packets = 20
	a, b := pair(t, p, packets*4096)
	b.recv(1, 0, packets*4096)
	a.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, packets*4096)}})
	require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
	require.Equal(t, verbs.WCSuccess, b.completion(a).Status)

	mu.Lock()
	defer mu.Unlock()
	data := map[bool]int{}
	for _, s := range all {
		k, f := wire.Parse(s.packet)
		require.Equal(t, wire.FaultNone, f)
		id, ok := wire.NewPrefix(s.h.Src, s.h.Dst).Check(s.packet, s.h.ID)
		assert.True(t, ok, "icrc of %v", k.Opcode)
		assert.Equal(t, s.h.ID, id)
		if len(k.Payload) == 4096 {
			data[s.sent]++
			assert.Equal(t, b.qp.QPN(), k.DestQP)
		}
	}
	assert.GreaterOrEqual(t, data[true], packets)
	assert.GreaterOrEqual(t, data[false], packets)
}
