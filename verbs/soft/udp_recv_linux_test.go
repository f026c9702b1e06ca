package soft

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
func sendOne(t testing.TB, u *udpPort, to *udpPeer, p *packet) {
	t.Helper()
	tr := u.beginBatch(to)
	require.True(t, tr.add(p))
	require.Equal(t, ucs.OK, tr.send())
}

func numbered(psn int) *packet {
	return &packet{Header: wire.Header{Opcode: wire.SendOnly, PSN: verbs.PSN(psn)}, n: 8, nsg: 1, sg: [verbs.MaxSGE][]byte{make([]byte, 8)}}
}

// A datagram that is held stays as it is, whatever comes after it. If all are
// held nothing is received until one is released, and nothing is lost by it.
func TestUDPHold(t *testing.T) {
	a, b, toB, _ := udpPair(t, loopback)
	var held []*datagram
	for i := range maxBuffers {
		sendOne(t, a, &toB, numbered(i))
		arrivals(t, b, func(d *datagram) bool {
			d.hold()
			held = append(held, d)
			return false
		})
		require.Len(t, held, i+1)
	}
	sendOne(t, a, &toB, numbered(maxBuffers))
	require.Empty(t, b.recv())
	require.Equal(t, uint64(1), b.counts[udpRxNoBuffer].Load())
	for i, d := range held {
		var p packet
		f, ok := d.decode(0, &p, false)
		require.True(t, f == wire.FaultNone && ok)
		require.Equal(t, verbs.PSN(i), p.PSN)
	}
	held[17].release()
	arrivals(t, b, func(d *datagram) bool {
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
		for _, d := range b.recv() {
			require.True(t, toA.matches(d))
			for i := range d.packets() {
				var p packet
				f, ok := d.decode(i, &p, false)
				require.True(t, f == wire.FaultNone && ok)
				require.Equal(t, verbs.PSN(next), p.PSN)
				next++
			}
		}
	}
	require.Less(t, calls, n/2)
	require.Empty(t, b.recv())
	require.Zero(t, b.rx.streak)
}

// What the kernel drops, because nobody receives, is counted when it tells so.
func TestUDPOverflow(t *testing.T) {
	a := openTestPort(t, loopback)
	b, err := openUDP(loopback, 0, 8192)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.close()) }()
	toB, err := a.peer(b.gid(), b.lid())
	require.NoError(t, err)
	sent, came := uint64(500), uint64(0)
	for i := range int(sent) {
		sendOne(t, a, &toB, numbered(i))
	}
	end := time.Now().Add(20 * time.Second)
	for b.counts[udpRxOverflow].Load() == 0 { // told with the next that finds room
		require.True(t, time.Now().Before(end))
		if ds := b.recv(); ds != nil {
			came += uint64(len(ds))
			continue
		}
		sendOne(t, a, &toB, numbered(0))
		sent++
	}
	require.LessOrEqual(t, b.counts[udpRxOverflow].Load()+came, sent)
	require.Greater(t, b.counts[udpRxOverflow].Load(), uint64(100))
}

// Any bytes on the port are dropped and counted: no panic, no growth, and what
// is right still arrives between them.
func TestUDPGarbage(t *testing.T) {
	for _, c := range []udpCase{{"IPv4", loopback, true}, {"IPv6", loopback6, true}} {
		t.Run(c.name, func(t *testing.T) {
			a, b, toB, toA := udpPair(t, c.addr)
			stranger, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(b.addr))
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
				arrivals(t, b, func(d *datagram) bool {
					came++
					for k := range d.packets() {
						var p packet
						switch f, ok := d.decode(k, &p, false); {
						case f != wire.FaultNone:
							fault++
						case !ok:
							wrong++
						case toA.matches(d):
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
			require.Positive(t, b.counts[udpRxShort].Load())
			require.Equal(t, uint64(2*rounds), came+b.counts[udpRxShort].Load())
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
		n = r.IntN(minPacket)
	case 1:
		n = r.IntN(maxUDPPayload)
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
	u, err := openUDP(loopback, 0, 0)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, u.close()) })
	f.Fuzz(func(t *testing.T, b, name, ctl []byte, nameLen, flags uint32) {
		d := &datagram{u: u}
		m := &mmsghdr{n: uint32(len(b))}
		m.hdr.Namelen, m.hdr.Flags = nameLen, int32(flags)
		m.hdr.SetControllen(len(ctl))
		copy(d.rx.buf[:], b)
		copy(d.rx.name[:], name)
		copy(d.rx.ctl[:], ctl)
		if !d.parseHeader(m) {
			return
		}
		require.GreaterOrEqual(t, d.seg, minPacket)
		total := 0
		for i := range d.packets() {
			var p packet
			_, _ = d.decode(i, &p, false)
			require.LessOrEqual(t, len(d.packet(i)), d.seg)
			total += len(d.packet(i))
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
			a.setClass(&toB, 0x68, 17)
			look := func() (tos, ttl uint8, area []byte) {
				tr := a.beginBatch(&toB)
				require.True(t, tr.add(numbered(1)))
				require.True(t, tr.add(numbered(2)))
				require.Equal(t, ucs.OK, tr.send())
				area = make([]byte, grhLen)
				seen := 0
				arrivals(t, b, func(d *datagram) bool {
					tos, ttl = d.tos, d.ttl
					putGRH(area, d.from.gid(), b.gid(), d.tos, d.ttl, len(d.packet(0)))
					seen += d.packets()
					return seen < 2
				})
				return tos, ttl, area
			}
			tos, ttl, _ := look()
			require.Zero(t, tos)
			require.Zero(t, ttl)
			require.NoError(t, b.enableClass())
			tos, ttl, area := look()
			require.Equal(t, uint8(0x68), tos)
			require.Equal(t, uint8(17), ttl)
			a.setClass(&toB, 0, 0)
			_, system, _ := look()
			a.setClass(&toB, 0, system)
			require.Zero(t, toB.ttl, "the system's own costs nothing")
			_, ttl, _ = look()
			require.Equal(t, system, ttl)
			if c.addr.Is4() {
				require.Equal(t, make([]byte, 20), area[:20])
				require.Equal(t, []byte{0x45, 0x68, 0, 52, 0, 0, 0x40, 0, 17, 17}, area[20:30])
				require.Equal(t, []byte{127, 0, 0, 1, 127, 0, 0, 1}, area[32:])
				sum := 0
				for i := 20; i < 40; i += 2 {
					sum += int(area[i])<<8 | int(area[i+1])
				}
				require.Equal(t, 0xffff, sum&0xffff+sum>>16)
				return
			}
			require.Equal(t, []byte{0x66, 0x80, 0, 0, 0, 32, 17, 17}, area[:8])
			one := append(make([]byte, 15), 1)
			require.Equal(t, append(one, one...), area[8:])
		})
	}
}

// The kernel is asked for them from the first queue pair on whose program reads
// them.
func TestUDPClassWhereRead(t *testing.T) {
	p := New(Config{Link: LinkUDP, Addr: localhost})
	infos, err := p.Devices()
	require.NoError(t, err)
	d, err := p.Open(infos[0])
	require.NoError(t, err)
	closeAtEnd(t, d)
	pd, err := d.AllocPD()
	require.NoError(t, err)
	closeAtEnd(t, pd)
	cq, err := d.CreateCQ(verbs.CQConfig{Depth: 4})
	require.NoError(t, err)
	closeAtEnd(t, cq)
	for _, without := range []bool{true, false} {
		q, err := pd.CreateQP(verbs.QPConfig{
			Type: verbs.UD, SendCQ: cq, RecvCQ: cq, NoClass: without,
			Caps: verbs.QPCaps{MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		})
		require.NoError(t, err)
		closeAtEnd(t, q)
		asked, err := unix.GetsockoptInt(d.(*device).udp.fd, unix.IPPROTO_IP, unix.IP_RECVTOS)
		require.NoError(t, err)
		require.Equal(t, !without, asked == 1)
	}
}

// No packet costs an allocation, right or wrong.
func TestGateUDPAllocations(t *testing.T) {
	a, b, toB, toA := udpPair(t, loopback)
	long := &packet{Header: wire.Header{Opcode: wire.WriteMiddle}, n: 4096, nsg: 1, sg: [verbs.MaxSGE][]byte{make([]byte, 4096)}}
	small, in := numbered(1), new(packet)
	round := func(p *packet) func() {
		return func() {
			tr := a.beginBatch(&toB)
			tr.add(p)
			tr.add(p)
			tr.send()
			for n := 0; n < 2; {
				for _, d := range b.recv() {
					n += d.packets()
					for i := range d.packets() {
						d.decode(i, in, false)
					}
					_ = toA.matches(d)
				}
			}
		}
	}
	for _, gso := range []bool{true, false} {
		a.gso.Store(gso && a.gso.Load())
		for range 4 * recvmmsgAfterMax { // until all buffers that it uses are made
			round(small)()
		}
		require.Zero(t, testing.AllocsPerRun(100, round(small)))
		require.Zero(t, testing.AllocsPerRun(100, round(long)))
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { b.recv() }))
}
