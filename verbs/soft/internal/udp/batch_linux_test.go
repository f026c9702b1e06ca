package udp

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

var (
	loopback  = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
)

func openTestPort(t testing.TB, addr netip.Addr) *Socket {
	t.Helper()
	u, err := Open(addr, 0, 1<<20)
	if err != nil && addr.Is6() {
		t.Skipf("no IPv6 here: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, u.Close()) })
	return u
}

// udpPair is two ports of one address that know each other.
func udpPair(t testing.TB, addr netip.Addr) (a, b *Socket, toB, toA Peer) {
	t.Helper()
	a, b = openTestPort(t, addr), openTestPort(t, addr)
	toB, err := a.Peer(b.GID(), b.LID())
	require.NoError(t, err)
	toA, err = b.Peer(a.GID(), a.LID())
	require.NoError(t, err)
	return a, b, toB, toA
}

// arrivals waits until want says that it has seen enough datagrams.
func arrivals(t testing.TB, u *Socket, want func(d *Datagram) bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		for _, d := range u.Recv() {
			if !want(d) {
				return
			}
		}
		if time.Now().After(end) {
			require.FailNow(t, "not all came")
		}
		runtime.Gosched()
	}
}

// receive waits for n packets, checks each and returns them.
func receive(t testing.TB, u *Socket, from *Peer, n int) (got []packet) {
	t.Helper()
	arrivals(t, u, func(d *Datagram) bool {
		require.True(t, from.Matches(d))
		for i := range d.Packets() {
			var p packet
			f, ok := d.decode(i, &p, ICRCSearch)
			require.Equal(t, wire.FaultNone, f)
			require.True(t, ok, "ICRC of packet %d", i)
			got = append(got, flat(&p))
		}
		return len(got) < n
	})
	return got
}

// plainICRC is the checksum of a packet of bytes b, ICRC included, by the
// annex's words: no tables, no prefix.
func plainICRC(b []byte, src, dst netip.AddrPort, id uint16) uint32 {
	n := len(b)
	h := wire.Network{Src: src, Dst: dst, TOS: 0xff, TTL: 0xff, ID: id}
	all := binary.BigEndian.AppendUint64(nil, ^uint64(0))
	all = h.AppendUDP(h.AppendIP(all, wire.UDPLen+n), n)
	if h.IPv4() {
		all[8+10], all[8+11] = 0xff, 0xff
	} else {
		binary.BigEndian.PutUint32(all[8:], 0x6fffffff)
	}
	all[len(all)-2], all[len(all)-1] = 0xff, 0xff
	at := len(all)
	all = append(all, b[:n-wire.ICRCLen]...)
	all[at+4] = 0xff
	return crc32.ChecksumIEEE(all)
}

type udpCase struct {
	name string
	addr netip.Addr
	gso  bool
}

var udpCases = []udpCase{
	{"IPv4 trains", loopback, true},
	{"IPv4 single packets", loopback, false},
	{"IPv6 trains", loopback6, true},
	{"IPv6 single packets", loopback6, false},
}

// Packets of all lengths arrive as they were, in order, each with the checksum
// that the annex says for its place in the train.
func TestUDPTrain(t *testing.T) {
	for _, c := range udpCases {
		t.Run(c.name, func(t *testing.T) {
			a, b, toB, toA := udpPair(t, c.addr)
			segments := a.GSO.Load() && b.gro
			a.GSO.Store(a.GSO.Load() && c.gso)
			r := rand.New(rand.NewPCG(5, 6))
			for _, n := range []int{0, 1, 8, 63, CopyLimit, CopyLimit + 1, 1023, 1024, 4095, 4096} {
				var sent []packet
				tr := a.Begin(&toB)
				for p := randomPacket(r, wire.SendMiddle, n); tr.add(p); p = randomPacket(r, wire.SendMiddle, n) {
					sent = append(sent, flat(p))
				}
				require.Equal(t, min(MaxSegments, MaxPayload/wire.SendMiddle.Info().PacketLen(n)), len(sent))
				require.Equal(t, ucs.OK, tr.Send())
				var got []packet
				arrivals(t, b, func(d *Datagram) bool {
					if c.gso && segments {
						assert.Equal(t, len(sent), d.Packets())
					} else {
						assert.Equal(t, 1, d.Packets())
					}
					for i := range d.Packets() {
						raw := d.Packet(i)
						crc := plainICRC(raw, a.Addr, b.Addr, uint16(i))
						require.Equal(t, crc, binary.LittleEndian.Uint32(raw[len(raw)-wire.ICRCLen:]))
						var p packet
						f, ok := d.decode(i, &p, ICRCSearch)
						require.Equal(t, wire.FaultNone, f)
						require.True(t, ok)
						require.True(t, toA.Matches(d))
						got = append(got, flat(&p))
					}
					return len(got) < len(sent)
				})
				require.Equal(t, sent, got)
			}
			require.Zero(t, b.Counts[IDSearched].Load())
		})
	}
}

// A segment batch takes packets of one length and one shorter, no others.
func TestUDPTrainRules(t *testing.T) {
	a, b, toB, toA := udpPair(t, loopback)
	require.True(t, a.GSO.Load(), "Linux segments datagrams since 4.18")
	r := rand.New(rand.NewPCG(7, 8))
	middle := func(n int) *packet { return randomPacket(r, wire.WriteMiddle, n) }

	tr := a.Begin(&toB)
	require.True(t, tr.add(middle(64)))
	require.False(t, tr.add(middle(68)), "longer than the first")
	require.True(t, tr.add(middle(62)), "padded to the same length")
	ack := randomPacket(r, wire.Acknowledge, 0)
	require.True(t, tr.add(ack), "a shorter one")
	require.False(t, tr.add(ack), "the shorter one was the last")
	require.Equal(t, ucs.OK, tr.Send())
	got := receive(t, b, &toA, 3)
	require.Equal(t, []int{64, 62, 0}, []int{got[0].n, got[1].n, got[2].n})
	require.Equal(t, flat(ack), got[2])

	tr = a.Begin(&toB)
	n := 0
	for tr.add(middle(4096)) {
		n++
	}
	require.Equal(t, 15, n)
	require.Equal(t, ucs.OK, tr.Send())
	receive(t, b, &toA, n)

	require.Equal(t, ucs.OK, a.Begin(&toB).Send(), "an empty batch is no error")
}

// The payload is held until the send, and let go by it.
func TestUDPTrainHoldsPayload(t *testing.T) {
	a, b, toB, toA := udpPair(t, loopback)
	tr := a.Begin(&toB)
	released := make(chan struct{})
	func() {
		data := make([]byte, 4096)
		for i := range data {
			data[i] = byte(i * 7)
		}
		runtime.AddCleanup(&data[0], func(c chan struct{}) { close(c) }, released)
		require.True(t, tr.add(&packet{Header: wire.Header{Opcode: wire.SendOnly}, n: len(data), nsg: 1, sg: [verbs.MaxSGE][]byte{data}}))
	}()
	for range 3 {
		runtime.GC()
		_ = make([]byte, 4096)
	}
	require.Equal(t, ucs.OK, tr.Send())
	for i, c := range receive(t, b, &toA, 1)[0].sg[0] {
		require.Equal(t, byte(i*7), c)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		runtime.GC()
		select {
		case <-released:
			return
		default:
			require.True(t, time.Now().Before(end), "the scratch still holds the payload")
		}
	}
}

// More senders than the pool has scratch; each one's packets stay in order.
func TestUDPManySenders(t *testing.T) {
	a, b, toB, toA := udpPair(t, loopback)
	const senders, trains, each = 2 * len(batchPool{}), 20, 4
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8) // so that the socket holds what is on its way
	for s := range senders {
		wg.Go(func() {
			data := make([]byte, 600)
			for k := range trains {
				slots <- struct{}{}
				tr := a.Begin(&toB)
				for i := range each {
					p := &packet{Header: wire.Header{Opcode: wire.SendOnly, DestQP: verbs.QPN(s), PSN: verbs.PSN(k*each + i)}, n: 600, nsg: 1}
					p.sg[0] = data
					assert.True(t, tr.add(p))
				}
				assert.Equal(t, ucs.OK, tr.Send())
			}
		})
	}
	var next [senders]verbs.PSN
	left := senders * trains * each
	arrivals(t, b, func(d *Datagram) bool {
		require.True(t, toA.Matches(d))
		for i := range d.Packets() {
			var p packet
			f, ok := d.decode(i, &p, ICRCSearch)
			require.True(t, f == wire.FaultNone && ok)
			require.Equal(t, next[p.DestQP], p.PSN)
			next[p.DestQP]++
			if left--; left%each == 0 {
				<-slots
			}
		}
		return left > 0
	})
	wg.Wait()
}

func TestUDPOpen(t *testing.T) {
	u := openTestPort(t, loopback)
	require.GreaterOrEqual(t, u.LID(), uint16(0x8000))
	require.Less(t, u.LID(), uint16(0xc000))
	require.Equal(t, verbs.GIDOf(loopback), u.GID())
	require.GreaterOrEqual(t, u.rcvbuf, 1<<12)
	require.Positive(t, u.sndbuf)

	_, err := Open(loopback, u.LID(), 0)
	require.ErrorContains(t, err, "bind port", "the port is taken")
	for _, bad := range []string{"0.0.0.0", "224.0.0.1", "::", "ff02::1"} {
		_, err = Open(netip.MustParseAddr(bad), 0, 0)
		require.ErrorIs(t, err, ucs.ErrInvalid, bad)
	}
	_, err = Open(netip.Addr{}, 0, 0)
	require.ErrorIs(t, err, ucs.ErrInvalid)
	_, err = Open(netip.MustParseAddr("fe80::1%nosuchnet"), 0, 0)
	require.ErrorContains(t, err, "nosuchnet")
	_, err = Open(netip.MustParseAddr("192.0.2.77"), 0, 0)
	require.Error(t, err, "an address of somebody else")
}

func TestUDPPeer(t *testing.T) {
	u := openTestPort(t, loopback)
	p, err := u.Peer(u.GID(), 0)
	require.NoError(t, err)
	require.Equal(t, uint16(RoCEPort), p.src.port)
	for _, bad := range []string{"fe80::1", "0.0.0.0"} {
		_, err = u.Peer(verbs.GIDOf(netip.MustParseAddr(bad)), 5)
		require.ErrorIs(t, err, ucs.ErrUnreachable, bad)
	}

	p, err = u.Peer(u.GID(), 0x8123)
	require.NoError(t, err)
	from := func(a string) *Datagram { return &Datagram{u: u, From: SourceOf(netip.MustParseAddrPort(a))} }
	require.True(t, p.Matches(from("127.0.0.1:33059")))
	require.True(t, p.Matches(from("[::ffff:127.0.0.1]:33059")))
	require.False(t, p.Matches(from("127.0.0.1:33060")), "another port")
	require.False(t, p.Matches(&Datagram{From: p.src}), "to another local address")
	require.False(t, p.Matches(from("127.0.0.2:33059")), "another address")
	require.False(t, p.Matches(from("[::127.0.0.1]:33059")), "another family")

	p, err = u.Peer(u.GID(), RoCEPort)
	require.NoError(t, err)
	require.False(t, p.Matches(from("127.0.0.1:49999")), "another port")
	batches := func() bool {
		tr := u.Begin(&p)
		defer tr.Send()
		return tr.State != Singles
	}
	require.Equal(t, u.GSO.Load(), batches())
	p.Foreign = true
	require.False(t, batches(), "a foreign peer takes no segment batches over IPv4")
	require.True(t, p.Matches(from("127.0.0.1:49999")), "from any port of a foreign peer")
	require.True(t, p.Matches(from("127.0.0.1:1025")))
	require.False(t, p.Matches(from("127.0.0.2:4791")))
}

// TestForeignIPv6: an ICRC over IPv6 covers no identification, so that a foreign peer takes segment batches.
func TestForeignIPv6(t *testing.T) {
	u := openTestPort(t, loopback6)
	p, err := u.Peer(u.GID(), RoCEPort)
	require.NoError(t, err)
	p.Foreign = true
	tr := u.Begin(&p)
	defer tr.Send()
	require.Equal(t, u.GSO.Load(), tr.State != Singles)
}

func TestUDPSource(t *testing.T) {
	for _, c := range []struct {
		addr string
		lid  uint16
	}{
		{"10.1.2.3:4791", 4791},
		{"10.1.2.3:40000", 40000},
		{"10.1.2.3:49152", 0},
		{"[fd00::2]:33000", 33000},
	} {
		a := netip.MustParseAddrPort(c.addr)
		s := SourceOf(a)
		assert.Equal(t, c.lid, s.LID(), c.addr)
		assert.Equal(t, verbs.GIDOf(a.Addr()), s.GID())
		assert.Equal(t, a, s.AddrPort())
		var name [28]byte
		_, known := parseSockaddr(&name, 28)
		assert.False(t, known)
		n := putSockaddr(&name, a, 0)
		got, ok := parseSockaddr(&name, uint32(n))
		assert.True(t, ok)
		assert.Equal(t, s, got)
		_, known = parseSockaddr(&name, uint32(n)-1)
		assert.False(t, known)
	}
}

// A long payload that changes before the send breaks the checksum; of what is
// sent again, the copy that was sealed goes.
func TestUDPChangedPayload(t *testing.T) {
	a, b, toB, _ := udpPair(t, loopback)
	for _, again := range []bool{false, true} {
		data := make([]byte, 4096)
		tr := a.Begin(&toB)
		require.True(t, tr.add(&packet{Header: wire.Header{Opcode: wire.SendOnly}, retransmitted: again, n: len(data), nsg: 1, sg: [verbs.MaxSGE][]byte{data}}))
		data[1234]++
		require.Equal(t, ucs.OK, tr.Send())
		arrivals(t, b, func(d *Datagram) bool {
			require.Equal(t, again, d.Check(0, ICRCSearch))
			return false
		})
	}
}
