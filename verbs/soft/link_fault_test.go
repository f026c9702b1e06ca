package soft

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// openFaulty opens a device on each of two links with faults of their own.
func openFaulty(t *testing.T, c Config, faults [2]*Faults) (devs [2]*device) {
	c.Switch = NewSwitch()
	for i, f := range faults {
		c.Faults = f
		p := New(c)
		infos, err := p.Devices()
		require.NoError(t, err)
		ctx, err := p.Open(infos[0])
		require.NoError(t, err)
		devs[i] = ctx.(*device)
	}
	return devs
}

// overFaulty runs a test on each link that has a clock.
func overFaulty(t *testing.T, test func(t *testing.T, c Config)) {
	for _, c := range []Config{{Link: LinkInproc}, {Link: LinkUDP, Addr: localhost}} {
		t.Run(c.Link, func(t *testing.T) { test(t, c) })
	}
}

// TestFaultyLinks sends messages over real links with faults: each arrives once,
// in order, and the faults did happen.
func TestFaultyLinks(t *testing.T) {
	overFaulty(t, func(t *testing.T, c Config) {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				f := &Faults{Seed: seed, Loss: 0.02, Duplicate: 0.02, Reorder: 0.05, Corrupt: 0.1, Delay: 5 * time.Microsecond, Jitter: 50 * time.Microsecond}
				devs := openFaulty(t, c, [2]*Faults{f, f})
				until := ucs.Now().Add(time.Minute)
				stream(t, devs[0], devs[1], rand.New(rand.NewPCG(seed, 1)), messages{40, patient, 0}, func() {
					require.True(t, ucs.Now().Before(until), "it takes too long")
				})
				icrc := 0
				for _, counter := range devs[1].Stats().Snapshot() {
					if strings.HasSuffix(counter.Name, "dropped_icrc") {
						icrc += int(counter.Value)
					}
				}
				assert.NotZero(t, icrc, "corrupted packets that were noticed")
			})
		}
	})
}

// TestFaultyHook drops the first of every packet, by the hook.
func TestFaultyHook(t *testing.T) {
	overFaulty(t, func(t *testing.T, c Config) {
		type key struct {
			op  wire.Opcode
			psn verbs.PSN
		}
		seen := make(map[key]int)
		f := &Faults{Hook: func(p *PacketInfo) Verdict {
			if p.Received {
				return Verdict{}
			}
			k := key{p.Op, p.PSN}
			seen[k]++
			return Verdict{Drop: seen[k] == 1 && p.Op != wire.Acknowledge}
		}}
		devs := openFaulty(t, c, [2]*Faults{f, {}})
		until := ucs.Now().Add(time.Minute)
		stream(t, devs[0], devs[1], rand.New(rand.NewPCG(1, 1)), messages{40, patient, 0}, func() {
			require.True(t, ucs.Now().Before(until), "it takes too long")
		})
		assert.NotEmpty(t, seen)
	})
}

// TestFaultyReceive: received packets are lost, by chance and by the Hook, on a link whose
// other device sends all. Over UDP that device has no faults at all.
func TestFaultyReceive(t *testing.T) {
	overFaulty(t, func(t *testing.T, c Config) {
		dropped, passed, rng := 0, 0, rand.New(rand.NewPCG(5, 6))
		f := &Faults{Seed: 3, ReceiveLoss: 0.02, Hook: func(p *PacketInfo) Verdict {
			if !p.Received {
				return Verdict{}
			}
			v := Verdict{Drop: rng.IntN(50) == 0, Duplicate: rng.IntN(20) == 0, Corrupt: rng.IntN(50) == 0}
			if passed++; v.Drop {
				dropped++
			}
			return v
		}}
		other := &Faults{}
		if c.Link == LinkUDP {
			other = nil
		}
		devs := openFaulty(t, c, [2]*Faults{other, f})
		until := ucs.Now().Add(time.Minute)
		stream(t, devs[0], devs[1], rand.New(rand.NewPCG(1, 1)), messages{60, patient, 0}, func() {
			require.True(t, ucs.Now().Before(until), "it takes too long")
		})
		assert.NotZero(t, dropped)
		n := value(t, devs[1], "device.rx_packets")
		assert.NotZero(t, value(t, devs[1], "device.dropped_icrc"), "a packet that the Hook corrupted")
		assert.Less(t, n, uint64(passed), "some were lost")
		assert.NotZero(t, value(t, devs[1], "device.out_of_sequence")+value(t, devs[0], "device.retransmits"))
		if c.Link == LinkUDP {
			assert.Zero(t, value(t, devs[1], "udp.id_searched"), "a packet keeps its place in its batch")
		}
	})
}

// patient is a time-out of 0.13 s: on a busy machine a goroutine stands still for
// long.
const patient = 15
