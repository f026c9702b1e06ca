package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// slowICRC is the specification word for word, for comparison: it takes a whole
// packet from the IP header to the padding as it is sent, masks it, and divides
// bit by bit.
func slowICRC(ip []byte) []byte {
	b := append(bytes.Repeat([]byte{0xff}, 8), ip...)
	at := 8 + 20
	if ip[0]>>4 == 4 {
		b[8+1], b[8+8], b[8+10], b[8+11] = 0xff, 0xff, 0xff, 0xff
	} else {
		at = 8 + 40
		b[8] |= 0x0f
		b[8+1], b[8+2], b[8+3], b[8+7] = 0xff, 0xff, 0xff, 0xff
	}
	b[at+6], b[at+7] = 0xff, 0xff
	b[at+8+4] = 0xff

	reg := uint32(0xffffffff)
	for _, v := range b {
		for bit := range 8 {
			reg ^= uint32(v>>bit&1) << 31
			if reg>>31 != 0 {
				reg = reg<<1 ^ 0x04c11db7
			} else {
				reg <<= 1
			}
		}
	}
	// Transmitted from the register's high end, each byte's low bit first.
	out := make([]byte, 4)
	for i := range 32 {
		out[i/8] |= byte(^reg>>(31-i)&1) << (i % 8)
	}
	return out
}

// whole is the packet of h from the IP header on; b begins with the BTH and ends
// with the ICRC.
func whole(h *Network, b []byte) []byte {
	return append(h.AppendUDP(h.AppendIP(nil, UDPLen+len(b)), len(b)), b...)
}

func prefixOf(h *Network) Prefix { return NewPrefix(h.Src, h.Dst) }

func flow(src, dst string, id uint16) Network {
	return Network{Src: netip.MustParseAddrPort(src), Dst: netip.MustParseAddrPort(dst), TTL: 64, ID: id}
}

func TestICRCGolden(t *testing.T) {
	v4, v6 := flow("10.0.0.2:4791", "10.0.0.1:4791", 0), flow("[fd00::1]:40000", "[fd00::2]:4791", 0)
	for name, c := range map[string]struct {
		h      Network
		packet string
	}{
		"accepted by Linux rxe": {v4, sendGolden},
		"from Linux rxe":        {flow("10.0.0.1:50597", "10.0.0.2:4791", 0x50ac), "1100ffff000000550024ad6a1f0000013fff11cc"},
		"from a ConnectX-4 Lx, congestion bit set": {
			flow("10.0.17.1:0", "10.0.18.1:4791", 0x718c),
			"8100ffff40000118000000000000000000000000000000000000000082fd002a",
		},
		"from scapy, padded": {
			flow("10.1.2.3:50000", "10.4.5.6:4791", 0xbeef),
			"0a70ffff00abcdef80fffffe00007f0011223344deadbeef00000005616263646500000090d794c0",
		},
		"IPv6":         {v6, "0400ffff000000118000010068656c6c6f20736f667420726e69632117a9cc71"},
		"IPv6, padded": {v6, "0a70ffff00abcdef80fffffe00007f0011223344deadbeef00000005616263646500000090ab154c"},
	} {
		t.Run(name, func(t *testing.T) {
			b := unhex(t, c.packet)
			n := len(b) - ICRCLen
			p := prefixOf(&c.h)
			assert.Equal(t, binary.LittleEndian.Uint32(b[n:]), p.ICRC(b[:n], c.h.ID))
			assert.Equal(t, hexOf(b[n:]), hexOf(slowICRC(whole(&c.h, b)[:len(whole(&c.h, b))-ICRCLen])))

			sealed := append(slices.Clone(b[:n]), 1, 2, 3, 4)
			p.Seal(sealed, c.h.ID)
			assert.Equal(t, c.packet, hexOf(sealed))

			id, ok := p.Check(b, 0)
			assert.True(t, ok)
			assert.Equal(t, c.h.ID, id)
		})
	}
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func randomFlow(r *rand.Rand, ipv6 bool) Network {
	addr := func() netip.AddrPort {
		a, _ := netip.AddrFromSlice(randomBytes(r, map[bool]int{false: 4, true: 16}[ipv6]))
		return netip.AddrPortFrom(a.Unmap(), uint16(r.Uint32()))
	}
	return Network{
		Src: addr(), Dst: addr(), TOS: uint8(r.Uint32()), TTL: uint8(r.Uint32()),
		ID: uint16(r.Uint32()), FlowLabel: r.Uint32(),
	}
}

func family(ipv6 bool) string { return map[bool]string{false: "IPv4", true: "IPv6"}[ipv6] }

// The prefix with its tables against the specification, on random packets of all
// lengths, and in pieces.
func TestICRCAgainstTheSpecification(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		t.Run(family(ipv6), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			lengths := []int{4, 8, 60, 61, 62, 63, 64, 65, 79, 80, 1024, 4096, 4096 + 40, 9000, 65000 - 8 - 40}
			for len(lengths) < 200 {
				lengths = append(lengths, r.IntN(300))
			}
			for _, n := range lengths {
				h := randomFlow(r, ipv6)
				b := randomBytes(r, BTHLen+n+ICRCLen)
				covered := b[:BTHLen+n]
				ip := whole(&h, b)
				want := binary.LittleEndian.Uint32(slowICRC(ip[:len(ip)-ICRCLen]))
				p := prefixOf(&h)
				require.Equal(t, want, p.ICRC(covered, h.ID), "%d bytes", n)

				cut1 := BTHLen + r.IntN(n+1)
				cut2 := cut1 + r.IntN(len(covered)-cut1+1)
				crc := p.Start(covered[:cut1], len(b), h.ID)
				crc = Update(Update(crc, covered[cut1:cut2]), covered[cut2:])
				require.Equal(t, want, crc, "%d bytes cut at %d and %d", n, cut1, cut2)
			}
		})
	}
}

// Every field of every header but the masked ones is in the checksum.
func TestICRCCovers(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		t.Run(family(ipv6), func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			h := randomFlow(r, ipv6)
			b := randomBytes(r, 64)
			p := prefixOf(&h)
			want := p.ICRC(b, h.ID)
			for name, change := range map[string]func(h *Network){
				"source":           func(h *Network) { h.Src = netip.AddrPortFrom(h.Src.Addr().Next(), h.Src.Port()) },
				"destination":      func(h *Network) { h.Dst = netip.AddrPortFrom(h.Dst.Addr().Next(), h.Dst.Port()) },
				"source port":      func(h *Network) { h.Src = netip.AddrPortFrom(h.Src.Addr(), h.Src.Port()^1) },
				"destination port": func(h *Network) { h.Dst = netip.AddrPortFrom(h.Dst.Addr(), h.Dst.Port()^1) },
			} {
				other := h
				change(&other)
				q := prefixOf(&other)
				assert.NotEqual(t, want, q.ICRC(b, h.ID), name)
			}
			for i := range b {
				b[i] ^= 0x80
				if i == bthCongestion {
					assert.Equal(t, want, p.ICRC(b, h.ID), "byte %d is masked", i)
				} else {
					assert.NotEqual(t, want, p.ICRC(b, h.ID), "byte %d", i)
				}
				b[i] ^= 0x80
			}
			assert.Equal(t, ipv6, want == p.ICRC(b, h.ID^1), "identification")
		})
	}
}

func TestMappedAddressesAreOneFlow(t *testing.T) {
	assert.Equal(t, NewPrefix(flow4.Src, flow4.Dst), NewPrefix(mapped(flow4.Src), mapped(flow4.Dst)))
}

func TestUpdate(t *testing.T) {
	b := randomBytes(rand.New(rand.NewPCG(5, 6)), 200)
	for from := range 20 {
		for to := from; to <= len(b); to++ {
			require.Equal(t, crc32.Update(7, crc32.IEEETable, b[from:to]), Update(7, b[from:to]), "%d to %d", from, to)
		}
	}
}

// Every identification is found, whatever the length.
func TestSolveIDFindsAll(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	h := randomFlow(r, false)
	p := prefixOf(&h)
	for _, n := range []int{16, 20, 36, 1036, 4124} {
		b := randomBytes(r, n)
		for id := range 1 << 16 {
			if n > 100 && id%251 != 0 {
				continue
			}
			p.Seal(b, uint16(id))
			covered := b[:n-ICRCLen]
			got, ok := SolveID(p.ICRC(covered, 0), binary.LittleEndian.Uint32(b[n-ICRCLen:]), len(covered))
			require.True(t, ok, "%#x in %d bytes", id, n)
			require.Equal(t, uint16(id), got, "in %d bytes", n)
		}
	}
}

func TestCheck(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	h4, h6 := randomFlow(r, false), randomFlow(r, true)
	p4, p6 := prefixOf(&h4), prefixOf(&h6)
	b := randomBytes(r, 64)
	for name, c := range map[string]struct {
		p     Prefix
		sent  uint16
		index uint16
		want  uint16
	}{
		"the segment's index":         {p4, 5, 5, 5},
		"a plain datagram":            {p4, 0, 0, 0},
		"a plain datagram in a train": {p4, 0, 5, 0},
		"a foreign peer":              {p4, 0xe41d, 0, 0xe41d},
		"a foreign peer in a train":   {p4, 0xe41d, 5, 0xe41d},
		"IPv6":                        {p6, 0, 0, 0},
		"IPv6 in a train":             {p6, 0, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.p.Seal(b, c.sent)
			id, ok := c.p.Check(b, c.index)
			require.True(t, ok)
			require.Equal(t, c.want, id)
		})
	}
	t.Run("another flow", func(t *testing.T) {
		p4.Seal(b, 0)
		_, ok := p6.Check(b, 0)
		require.False(t, ok)
	})
	t.Run("short", func(t *testing.T) {
		for n := range BTHLen + ICRCLen {
			_, ok := p4.Check(b[:n], 0)
			require.False(t, ok, "%d bytes", n)
		}
	})
}

// A broken bit is never taken for an identification in IPv6, and as often as 16
// bits of chance allow in IPv4: those that the polynomial moves into just them.
func TestCheckFindsBrokenBits(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		t.Run(family(ipv6), func(t *testing.T) {
			r := rand.New(rand.NewPCG(11, 12))
			h := randomFlow(r, ipv6)
			p := prefixOf(&h)
			missed, bits := 0, 0
			for _, n := range []int{16, 40, 1040, 4124} {
				b := randomBytes(r, n)
				p.Seal(b, 3)
				for i := range b {
					if i == bthCongestion {
						continue // not covered
					}
					for bit := range 8 {
						b[i] ^= 1 << bit
						if _, ok := p.Check(b, 3); ok {
							missed++
						}
						b[i] ^= 1 << bit
						bits++
					}
				}
			}
			if ipv6 {
				assert.Zero(t, missed)
			} else {
				assert.LessOrEqual(t, missed, 1+bits>>14, "of %d", bits)
			}
		})
	}
}

func TestGateICRCAllocs(t *testing.T) {
	p, b := prefixOf(&flow4), make([]byte, 4124)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		p.Seal(b, 3)
		_, _ = p.Check(b, 3)
		_, _ = p.Check(b, 7)
		_ = Update(p.Start(b[:BTHLen], len(b), 1), b[BTHLen:])
	}))
}

// A device keeps one for each peer.
func TestGatePrefixSize(t *testing.T) {
	assert.Equal(t, uintptr(8), reflect.TypeFor[Prefix]().Size())
}
