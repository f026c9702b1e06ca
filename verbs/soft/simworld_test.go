package soft

import (
	"fmt"
	"net/netip"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// simWorld is devices on a simulated network, in virtual time and one goroutine.
type simWorld struct {
	net  *sim.Net
	devs []*device
}

// newSimWorld makes n devices, with addresses of their own so that a seed gives
// the same run each time: IPv4 ones where c.Addr is one.
func newSimWorld(seed uint64, n int, c Config) (*simWorld, error) {
	w := &simWorld{net: sim.New(seed)}
	for i := range n {
		c.Fabric, c.Engine = w.net, EngineInline
		if c.Addr.Is4() {
			c.Addr = netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
		} else {
			c.Addr = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i + 1)})
		}
		c.Port = uint16(40001 + i)
		p := New(c)
		infos, err := p.Devices()
		if err != nil {
			return nil, err
		}
		ctx, err := p.Open(infos[0])
		if err != nil {
			return nil, err
		}
		w.devs = append(w.devs, ctx.(*device))
	}
	return w, nil
}

// advance moves the time to the next thing that happens, and lets the devices
// act. It reports false where nothing ever will.
func (w *simWorld) advance() bool {
	next, ok := w.net.Next()
	if !ok {
		next = never
	}
	for _, d := range w.devs {
		for _, e := range *d.engines.Load() {
			next = min(next, ucs.Time(e.nextTimer.Load()))
		}
		if d.faults != nil {
			next = min(next, d.faults.nextDeadline())
		}
	}
	if next == never {
		return false
	}
	w.net.RunUntil(next)
	w.settle()
	return true
}

// settle has the devices do all that they have to do at this time.
func (w *simWorld) settle() {
	for _, d := range w.devs {
		d.tick(w.net.Now())
		for range 100 {
			if d.progress() == 0 {
				break
			}
		}
	}
}

// describePacket says what a datagram is, for the trace.
func describePacket(b []byte) string {
	p, f := wire.Parse(b)
	if f != wire.FaultNone {
		return fmt.Sprintf("%x", b)
	}
	what := fmt.Sprintf("%v qp %#x psn %#x", p.Opcode, uint32(p.DestQP), uint32(p.PSN))
	if p.AckReq {
		what += " ack!"
	}
	if p.Opcode.Info().Headers&wire.HasAETH != 0 {
		what += fmt.Sprintf(" syndrome %#x msn %d", uint8(p.Syndrome), p.MSN)
	}
	return what
}

// rcSetup is how a pair of queue pairs is connected.
type rcSetup struct {
	mtu      verbs.MTU
	psn      [2]verbs.PSN // that each side sends first
	timeout  uint8
	retry    uint8
	rnrRetry [2]uint8 // of each side as the requester
	rnrTimer uint8
	reads    [2]uint8 // outstanding of each side
	access   verbs.Access
	features uint32 // beside PeerGoucx
}

// connectRC takes two queue pairs to RTS, towards each other.
func connectRC(a, b verbs.QP, da, db *device, s *rcSetup) error {
	qps, devs := [2]verbs.QP{a, b}, [2]*device{da, db}
	for i, q := range qps {
		peer := 1 - i
		err := verbs.ConnectRC(q, verbs.RemoteQP{
			AV:  verbs.AHAttr{DGID: devs[peer].gid, DLID: devs[peer].lid, Port: 1, HopLimit: 64},
			QPN: qps[peer].QPN(), PSN: s.psn[peer], MTU: s.mtu, MaxRdAtomic: s.reads[peer], PeerFeatures: s.features | verbs.PeerGoucx,
		}, verbs.QPAttr{
			Access: s.access, SQPSN: s.psn[i], MaxRdAtomic: s.reads[i], MinRNRTimer: s.rnrTimer,
			Timeout: s.timeout, RetryCnt: s.retry, RNRRetry: s.rnrRetry[i],
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fabricAddr returns the address of a device on its Fabric.
func (d *device) fabricAddr() netip.AddrPort { return fabricAddr(d.gid, d.lid) }
