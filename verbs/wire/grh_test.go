package wire

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	flow4 = Network{
		Src: netip.MustParseAddrPort("10.0.0.2:4791"), Dst: netip.MustParseAddrPort("10.0.0.1:4791"),
		TOS: 2, TTL: 64,
	}
	flow6 = Network{
		Src: netip.MustParseAddrPort("[fd00::1]:40000"), Dst: netip.MustParseAddrPort("[fd00::2]:4791"),
		TOS: 3, TTL: 63, FlowLabel: 0x54321,
	}
)

// The headers of a packet of 32 bytes, as scapy makes them.
const (
	ip4Golden  = "4502003c00004000401126ad0a0000020a000001"
	udp4Golden = "12b712b700280000"
	ip6Golden  = "603543210028113ffd000000000000000000000000000001fd000000000000000000000000000002"
	udp6Golden = "9c4012b700280000"
	zeros20    = "0000000000000000000000000000000000000000"
)

func withoutPorts(h Network) Network {
	h.Src, h.Dst = netip.AddrPortFrom(h.Src.Addr().Unmap(), 0), netip.AddrPortFrom(h.Dst.Addr().Unmap(), 0)
	return h
}

func mapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
}

func TestNetworkGolden(t *testing.T) {
	mapped4 := flow4
	mapped4.Src, mapped4.Dst = mapped(flow4.Src), mapped(flow4.Dst)
	for name, c := range map[string]struct {
		h       Network
		ip, udp string
	}{
		"IPv4":         {flow4, ip4Golden, udp4Golden},
		"IPv4 in IPv6": {mapped4, ip4Golden, udp4Golden},
		"IPv6":         {flow6, ip6Golden, udp6Golden},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, unhex(t, c.ip), c.h.AppendIP(nil, UDPLen+32))
			assert.Equal(t, unhex(t, c.udp), c.h.AppendUDP(nil, 32))
		})
	}
	mixed := flow6
	mixed.Dst = flow4.Dst
	assert.Equal(t, "00000000000000000000ffff0a000001", hexOf(mixed.AppendIP(nil, 8)[ip6Dst:]), "one address of each family")
	odd := flow6
	odd.FlowLabel |= 0xfff << 20
	assert.Equal(t, unhex(t, ip6Golden), odd.AppendIP(nil, UDPLen+32), "a flow label has 20 bits")
}

func TestGRHGolden(t *testing.T) {
	identified := flow4
	identified.ID = 0x50ac
	for name, c := range map[string]struct {
		h    Network
		want string
	}{
		"IPv4":                        {flow4, zeros20 + ip4Golden},
		"IPv4 with an identification": {identified, zeros20 + "4502003c50ac40004011d6000a0000020a000001"},
		"IPv6":                        {flow6, ip6Golden},
	} {
		t.Run(name, func(t *testing.T) {
			b := make([]byte, GRHLen+3)
			for i := range b {
				b[i] = 0x66
			}
			GRH(b).Put(&c.h, 32)
			assert.Equal(t, unhex(t, c.want), b[:GRHLen])
			assert.Equal(t, []byte{0x66, 0x66, 0x66}, b[GRHLen:], "the data behind it")
			got, ok := GRH(b).Network()
			require.True(t, ok)
			assert.Equal(t, withoutPorts(c.h), got)
		})
	}
}

func TestGRHReadsWhatOthersWrite(t *testing.T) {
	ip4, ip6 := withoutPorts(flow4), withoutPorts(flow6)
	for name, c := range map[string]struct {
		area string
		want *Network
	}{
		"rubbish in front of IPv4":              {"ff" + zeros20[2:] + ip4Golden, &ip4},
		"what looks like IPv6 in front of IPv4": {"60" + zeros20[2:] + ip4Golden, &ip4},
		"IPv4 of hardware without a checksum":   {zeros20 + "4502003c0000400040110000" + "0a0000020a000001", &ip4},
		"IPv6 whose address looks like IPv4":    {"603543210028113ffd000000000000000000000045000001fd000000000000000000000000000002", nil},
		"IPv6 with a mapped source":             {"603543210028113f00000000000000000000ffff0a000001fd000000000000000000000000000002", nil},
		"IPv6 with a mapped destination":        {"603543210028113ffd00000000000000000000000000000100000000000000000000ffff0a000001", nil},
		"neither":                               {zeros20 + zeros20, nil},
		"a version that is neither":             {"50" + zeros20[2:] + "50" + zeros20[2:], nil},
		"short":                                 {ip6Golden[2:], nil},
		"nothing":                               {"", nil},
		"IPv6":                                  {ip6Golden, &ip6},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := GRH(unhex(t, c.area)).Network()
			if name == "IPv6 whose address looks like IPv4" {
				require.True(t, ok)
				assert.Equal(t, "fd00::4500:1", got.Src.Addr().String())
				return
			}
			require.Equal(t, c.want != nil, ok)
			if ok {
				assert.Equal(t, *c.want, got)
			}
		})
	}
}

func FuzzGRH(f *testing.F) {
	f.Add([]byte{})
	f.Add(unhex(f, zeros20+ip4Golden))
	f.Add(unhex(f, ip6Golden))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := GRH(b).Network()
		if !ok {
			return
		}
		var again [GRHLen]byte
		GRH(again[:]).Put(&h, 32)
		got, ok := GRH(again[:]).Network()
		require.True(t, ok)
		require.Equal(t, withoutPorts(h), withoutPorts(got))
	})
}
