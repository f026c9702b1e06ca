package soft

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// A connection works on while strangers, and somebody who sends from the peer's
// own address, put onto the port whatever they like: all of it is dropped and
// counted by its first fault, and takes no memory.
func TestUDPFlood(t *testing.T) {
	a, b := pair(t, New(Config{Link: LinkUDP, Addr: loopback}), 8192)
	da, db := a.c.(*device), b.c.(*device)
	stranger := openTestPort(t, loopback)
	fromStranger, err := stranger.Peer(db.gid, db.lid)
	require.NoError(t, err)
	forged, err := da.udp.Peer(db.gid, db.lid)
	require.NoError(t, err)
	forged.Prefix = wire.NewPrefix(netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2"))
	var target unix.SockaddrInet4
	target.Port, target.Addr = int(db.lid), loopback.As4()

	r := rand.New(rand.NewPCG(11, 12))
	ops, raw := allOpcodes(), make([]byte, 1<<16)
	attack := func() {
		for range 8 {
			op := ops[r.IntN(len(ops))]
			p := randomPacket(r, op, payloadOf(r, op))
			p.DestQP = b.qp.QPN()
			sendOne(t, da.udp, &forged, p) // the checksum is wrong
			sendOne(t, stranger, &fromStranger, p)
			p.DestQP ^= verbs.QPN(1 + r.IntN(1<<24-1))
			sendOne(t, stranger, &fromStranger, p)

			g := garble(r, raw)
			g = g[:min(len(g), 200)]
			if len(g) >= wire.BTHLen {
				binary.BigEndian.PutUint32(g[4:], uint32(b.qp.QPN()))
			}
			require.NoError(t, unix.Sendto(da.udp.FD, g, 0, &target))
		}
	}
	var before, after runtime.MemStats
	const rounds = 300
	for i := range rounds {
		if i == rounds/10 {
			runtime.ReadMemStats(&before)
		}
		attack()
		n := r.IntN(len(a.buf))
		for k := range a.buf[:n] {
			a.buf[k] = byte(r.Uint32())
		}
		b.recv(uint64(i), 0, len(b.buf))
		a.send(verbs.SendWR{ID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, n)}})
		w := b.completion(a)
		require.Equal(t, verbs.WCSuccess, w.Status)
		require.Equal(t, uint64(i), w.ID)
		require.Equal(t, a.buf[:n], b.buf[:n])
		require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.HeapAlloc, before.HeapAlloc+8<<20)

	counted := map[string]uint64{}
	for _, c := range b.c.Stats().Snapshot() {
		counted[c.Name] = c.Value
	}
	for _, name := range []string{"device.dropped_icrc", "device.dropped_source", "device.dropped_qpn", "device.dropped_opcode", "udp.rx_short"} {
		require.Positive(t, counted[name], "%s of %v", name, counted)
	}
}

// Reliable connections work over IPv6.
func TestUDPConnectionIPv6(t *testing.T) {
	openTestPort(t, loopback6) // or skip
	testSendRecv(t, New(Config{Link: LinkUDP, Addr: loopback6}))
}

// And on a network that cuts trains, so that none comes whole.
func TestUDPConnectionOfSegments(t *testing.T) {
	if !inOwnNetwork(t, 9000, 1) {
		return
	}
	testSendRecv(t, New(Config{Link: LinkUDP, Addr: loopback}))
}

// An answer that is asked for once more is marked as sent before, and so is a
// request after a time-out: their payload may be memory that a program changes
// all the time, which the checksum would never fit.
func TestUDPMarksWhatIsSentAgain(t *testing.T) {
	a, b := pair(t, New(Config{Link: LinkUDP, Addr: loopback, Engine: EngineInline}), 4096)
	a.send(verbs.SendWR{
		Op: verbs.OpRead, Flags: verbs.SendSignaled, Remote: b.mr.Addr(), RKey: b.mr.RKey(),
		NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 4096)},
	})
	require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
	q := b.qp.(*qp)
	require.True(t, q.tryAcquire())
	kept := &q.rsp.saved[0]
	require.False(t, kept.retransmitted)
	q.handleDuplicate(&packet{Header: wire.Header{Opcode: wire.ReadRequest, PSN: kept.psn, RKey: kept.key, VA: kept.addr, DMALen: kept.n}}, wire.ReadRequest.Info())
	var p packet
	require.True(t, q.nextResponse(&p) || q.nextAck(&p))
	require.Equal(t, wire.ReadResponseOnly, p.Opcode)
	require.True(t, p.retransmitted)

	w := &wqe{nsg: 1, n: 4096, sg: [verbs.MaxSGE]verbs.SGE{b.sge(0, 4096)}}
	require.True(t, q.gather(w, 0, 4096, &p))
	require.False(t, p.retransmitted)
	q.req.retries--
	require.True(t, q.gather(w, 0, 4096, &p))
	require.True(t, p.retransmitted)
	q.transmitAndRelease()
}
