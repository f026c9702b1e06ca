package ud

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs/soft"
)

// faulty are devices that lose part of what they send, and do everything else to
// packets that may happen.
func faulty(link string, loss float64) nic.Providers {
	c := soft.Config{Link: link, Faults: &soft.Faults{
		Seed: 1, Loss: loss, Duplicate: 0.02, Reorder: 0.05, Corrupt: 0.01, Jitter: 200 * time.Microsecond,
	}}
	if link == soft.LinkUDP {
		c.Addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return over(c)
}

// checked notes whether numbered messages come once and in order, each holding
// what its number says.
type checked struct {
	t    testing.TB
	next uint64
	mem  []byte
}

func (c *checked) take(d *uct.Desc) {
	require.Equal(c.t, c.next, d.Header, "message")
	p := c.mem[d.Off:][:d.Len]
	require.Len(c.t, p, lengthOf(c.next))
	for i := range p {
		if p[i] != byte(c.next+uint64(i)) {
			require.FailNow(c.t, "damaged", "message %d", c.next)
		}
	}
	c.next++
}

// lengthOf is the length of message n.
func lengthOf(n uint64) int {
	if n%64 == 0 {
		return int(n*7919) % 3500
	}
	return int(n*31) % 90
}

// pour sends numbered messages until total, or there is no room.
func pour(t testing.TB, e *endpoint, sent *uint64, total uint64, buf []byte) {
	for *sent < total {
		p := buf[:lengthOf(*sent)]
		for i := range p {
			p[i] = byte(*sent + uint64(i))
		}
		switch st := e.AMShort(uct.AMID(*sent%uct.NumAMIDs), *sent, p); st {
		case ucs.OK:
			*sent++
		case ucs.NoResource:
			return
		default:
			require.FailNow(t, "send", "message %d: %v", *sent, st)
		}
	}
}

// TestLossy sends both ways over links with every fault: everything comes once, in
// order, and no endpoint fails: half a million messages do, in the long form ten million.
func TestLossy(t *testing.T) {
	total, many, times := uint64(3000), uint64(125_000), 1
	switch {
	case race.Enabled:
		many = 3000
	case os.Getenv("GOUCX_TEST_LONG") != "":
		total, times = 20_000, 20
	}
	for _, link := range []string{soft.LinkInproc, soft.LinkUDP} {
		for _, loss := range []float64{0.001, 0.05, 0.2} {
			t.Run(fmt.Sprintf("%s loss %v", link, loss), func(t *testing.T) {
				switch {
				case loss > 0.1:
					lossy(t, faulty(link, loss), total/20)
				case loss > 0.01:
					lossy(t, faulty(link, loss), total)
				default:
					for range times {
						lossy(t, faulty(link, loss), many)
					}
				}
			})
		}
	}
}

func lossy(t *testing.T, ps nic.Providers, total uint64) {
	ns := nodes(t, ps, 2)
	a, b := ns[0], ns[1]
	there, back := connect(t, a, b), connect(t, b, a)
	inA, inB := checked{t: t, mem: a.rx.Mem()}, checked{t: t, mem: b.rx.Mem()}
	a.onAM, b.onAM = inA.take, inB.take
	var sent [2]uint64
	buf, rnd := make([]byte, 4096), rand.New(rand.NewPCG(1, 2))
	const parts = 10 // each has the time limit of until: a busy machine is slow
	for part := uint64(1); part <= parts; part++ {
		until(t, func() bool {
			if rnd.IntN(200) == 0 { // what came is left to the async goroutine
				for end := ucs.Now().Add(3 * time.Millisecond); ucs.Now() < end; {
					cpu.Yield()
				}
			}
			pour(t, there, &sent[0], total, buf)
			pour(t, back, &sent[1], total, buf)
			return min(inA.next, inB.next) >= total*part/parts
		}, a, b)
	}
	require.Equal(t, [2]uint64{total, total}, [2]uint64{inA.next, inB.next})
	require.Empty(t, a.fails)
	require.Empty(t, b.fails)
	there.Close()
	back.Close()
	until(t, func() bool { return len(a.fails) == 1 && len(b.fails) == 1 }, a, b)
	require.NoError(t, a.fails[0].Err)
	require.NoError(t, b.fails[0].Err)
	idle := func(n *node) bool { return n.sees(func() bool { return len(n.freeEps) == 1 }) }
	until(t, func() bool { return idle(a) && idle(b) }, a, b)
	for _, n := range ns {
		require.True(t, n.sees(func() bool { return n.tx.small.Free()+n.tx.long.Free()+len(n.deferredSlots) == 1024+controlSlots }), "slots leak")
		require.True(t, n.sees(func() bool { return n.heldBufs == 0 && n.iface.retained == 0 }))
	}
}
