package udp

import (
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// sendOne sends a packet in a train of its own.
func sendOne(t testing.TB, u *Socket, to *Peer, p *packet) {
	t.Helper()
	tr := u.Begin(to)
	require.True(t, tr.add(p))
	require.Equal(t, ucs.OK, tr.Send())
}

func numbered(psn int) *packet {
	return &packet{Header: wire.Header{Opcode: wire.SendOnly, PSN: verbs.PSN(psn)}, n: 8, nsg: 1, sg: [verbs.MaxSGE][]byte{make([]byte, 8)}}
}

// A datagram that is held stays as it is, whatever comes after it. If all are
// held nothing is received until one is released, and nothing is lost by it.
func TestUDPHold(t *testing.T) {
	a, b, toB, _ := udpPair(t, loopback)
	var held []*Datagram
	for i := range maxBuffers {
		sendOne(t, a, &toB, numbered(i))
		arrivals(t, b, func(d *Datagram) bool {
			d.Hold()
			held = append(held, d)
			return false
		})
		require.Len(t, held, i+1)
	}
	sendOne(t, a, &toB, numbered(maxBuffers))
	require.Empty(t, b.Recv())
	require.Equal(t, uint64(1), b.Counts[RxNoBuffer].Load())
	for i, d := range held {
		var p packet
		f, ok := d.decode(0, &p, ICRCSearch)
		require.True(t, f == wire.FaultNone && ok)
		require.Equal(t, verbs.PSN(i), p.PSN)
	}
	held[17].Release()
	arrivals(t, b, func(d *Datagram) bool {
		require.Same(t, held[17], d)
		return false
	})
}

// Many single packets are taken by few calls, in order.
func TestUDPRecvMany(t *testing.T) {
	a, b, toB, toA := udpPair(t, loopback)
	const n = 100
	for i := range n {
		sendOne(t, a, &toB, numbered(i))
	}
	next, calls := 0, 0
	for end := time.Now().Add(20 * time.Second); next < n; calls++ {
		require.True(t, time.Now().Before(end))
		for _, d := range b.Recv() {
			require.True(t, toA.Matches(d))
			for i := range d.Packets() {
				var p packet
				f, ok := d.decode(i, &p, ICRCSearch)
				require.True(t, f == wire.FaultNone && ok)
				require.Equal(t, verbs.PSN(next), p.PSN)
				next++
			}
		}
	}
	require.Less(t, calls, n/2)
	require.Empty(t, b.Recv())
	require.Zero(t, b.rx.streak)
}

// What the kernel drops, because nobody receives, is counted when it tells so.
func TestUDPOverflow(t *testing.T) {
	a := openTestPort(t, loopback)
	b, err := Open(loopback, 0, 8192)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	toB, err := a.Peer(b.GID(), b.LID())
	require.NoError(t, err)
	sent, came := uint64(500), uint64(0)
	for i := range int(sent) {
		sendOne(t, a, &toB, numbered(i))
	}
	end := time.Now().Add(20 * time.Second)
	for b.Counts[RxOverflow].Load() == 0 { // told with the next that finds room
		require.True(t, time.Now().Before(end))
		if ds := b.Recv(); ds != nil {
			came += uint64(len(ds))
			continue
		}
		sendOne(t, a, &toB, numbered(0))
		sent++
	}
	require.LessOrEqual(t, b.Counts[RxOverflow].Load()+came, sent)
	require.Greater(t, b.Counts[RxOverflow].Load(), uint64(100))
}

// Any bytes on the port are dropped and counted: no panic, no growth, and what
// is right still arrives between them.
func TestUDPGarbage(t *testing.T) {
	for _, c := range []udpCase{{"IPv4", loopback, true}, {"IPv6", loopback6, true}} {
		t.Run(c.name, func(t *testing.T) {
			a, b, toB, toA := udpPair(t, c.addr)
			stranger, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(b.Addr))
			require.NoError(t, err)
			defer func() { require.NoError(t, stranger.Close()) }()
			r := rand.New(rand.NewPCG(9, 10))

			const rounds = 3000
			var came, fault, wrong, right uint64
			var before, after runtime.MemStats
			garbage := make([]byte, 1<<16)
			for i := range rounds {
				if i == 100 {
					runtime.ReadMemStats(&before)
				}
				_, err = stranger.Write(garble(r, garbage))
				require.NoError(t, err)
				sendOne(t, a, &toB, numbered(i))
				arrivals(t, b, func(d *Datagram) bool {
					came++
					for k := range d.Packets() {
						var p packet
						switch f, ok := d.decode(k, &p, ICRCSearch); {
						case f != wire.FaultNone:
							fault++
						case !ok:
							wrong++
						case toA.Matches(d):
							require.Equal(t, verbs.PSN(i), p.PSN)
							right++
						}
					}
					return right <= uint64(i)
				})
			}
			runtime.ReadMemStats(&after)
			require.Equal(t, uint64(rounds), right)
			require.Positive(t, fault)
			require.Positive(t, wrong)
			require.Positive(t, b.Counts[RxShort].Load())
			require.Equal(t, uint64(2*rounds), came+b.Counts[RxShort].Load())
			require.LessOrEqual(t, len(b.rx.datagrams), maxDatagrams)
			require.Less(t, after.HeapAlloc, before.HeapAlloc+4<<20)
		})
	}
}

// garble draws bytes that are no packet: random ones, or a packet with an error.
func garble(r *rand.Rand, b []byte) []byte {
	n := r.IntN(100)
	switch r.IntN(8) {
	case 0:
		n = r.IntN(MinPacket)
	case 1:
		n = r.IntN(MaxPayload)
	case 2, 3, 4:
		ops := allOpcodes()
		op := ops[r.IntN(len(ops))]
		n = randomPacket(r, op, payloadOf(r, op)).encode(b) + wire.ICRCLen
		return b[:n]
	}
	for i := range b[:n] {
		b[i] = byte(r.Uint32())
	}
	return b[:n]
}

// Whatever the kernel should say of a message, and whatever stands in it, the
// packets lie inside it and nothing panics.
func FuzzReceive(f *testing.F) {
	name := make([]byte, 28)
	name[0] = unix.AF_INET
	gro := putCmsg(make([]byte, 0, 128), unix.SOL_UDP, unix.UDP_GRO, 4)
	gro[unix.CmsgLen(0)] = 20
	f.Add(make([]byte, 100), name, gro, uint32(16), uint32(0))
	f.Add([]byte{4, 0}, name[:3], gro[:7], uint32(28), uint32(unix.MSG_TRUNC))
	f.Add(make([]byte, 16), []byte{unix.AF_INET6}, []byte{255, 255, 255, 255, 255, 255, 255, 255}, uint32(28), uint32(0))
	u, err := Open(loopback, 0, 0)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, u.Close()) })
	f.Fuzz(func(t *testing.T, b, name, ctl []byte, nameLen, flags uint32) {
		d := &Datagram{u: u}
		m := &mmsghdr{n: uint32(len(b))}
		m.hdr.Namelen, m.hdr.Flags = nameLen, int32(flags)
		m.hdr.SetControllen(len(ctl))
		copy(d.rx.buf[:], b)
		copy(d.rx.name[:], name)
		copy(d.rx.ctl[:], ctl)
		if !d.parseHeader(m) {
			return
		}
		require.GreaterOrEqual(t, d.seg, MinPacket)
		total := 0
		for i := range d.Packets() {
			var p packet
			_, _ = d.decode(i, &p, ICRCSearch)
			require.LessOrEqual(t, len(d.Packet(i)), d.seg)
			total += len(d.Packet(i))
		}
		require.Equal(t, len(b), total)
	})
}

// Type of service and time to live come with a datagram where they are asked for,
// and stand in the area in front of its data.
func TestUDPClass(t *testing.T) {
	for _, c := range []udpCase{{"IPv4", loopback, true}, {"IPv6", loopback6, true}} {
		t.Run(c.name, func(t *testing.T) {
			a, b, toB, _ := udpPair(t, c.addr)
			a.SetClass(&toB, 0x68, 17)
			look := func() (tos, ttl uint8) {
				tr := a.Begin(&toB)
				require.True(t, tr.add(numbered(1)))
				require.True(t, tr.add(numbered(2)))
				require.Equal(t, ucs.OK, tr.Send())
				seen := 0
				arrivals(t, b, func(d *Datagram) bool {
					tos, ttl = d.TOS, d.TTL
					seen += d.Packets()
					return seen < 2
				})
				return tos, ttl
			}
			tos, ttl := look()
			require.Zero(t, tos)
			require.Zero(t, ttl)
			require.NoError(t, b.EnableClass())
			tos, ttl = look()
			require.Equal(t, uint8(0x68), tos)
			require.Equal(t, uint8(17), ttl)
			a.SetClass(&toB, 0, 0)
			_, system := look()
			a.SetClass(&toB, 0, system)
			require.Zero(t, toB.ttl, "the system's own costs nothing")
			_, ttl = look()
			require.Equal(t, system, ttl)
		})
	}
}

// No packet costs an allocation, right or wrong.
func TestGateUDPAllocations(t *testing.T) {
	a, b, toB, toA := udpPair(t, loopback)
	long := &packet{Header: wire.Header{Opcode: wire.WriteMiddle}, n: 4096, nsg: 1, sg: [verbs.MaxSGE][]byte{make([]byte, 4096)}}
	small, in := numbered(1), new(packet)
	round := func(p *packet) func() {
		return func() {
			tr := a.Begin(&toB)
			tr.add(p)
			tr.add(p)
			tr.Send()
			for n := 0; n < 2; {
				for _, d := range b.Recv() {
					n += d.Packets()
					for i := range d.Packets() {
						d.decode(i, in, ICRCSearch)
					}
					_ = toA.Matches(d)
				}
			}
		}
	}
	for _, gso := range []bool{true, false} {
		a.GSO.Store(gso && a.GSO.Load())
		for range 4 * recvmmsgAfterMax { // until all buffers that it uses are made
			round(small)()
		}
		require.Zero(t, testing.AllocsPerRun(100, round(small)))
		require.Zero(t, testing.AllocsPerRun(100, round(long)))
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { b.Recv() }))
}
