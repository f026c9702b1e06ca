package soft

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

func TestAddressRefused(t *testing.T) {
	p := testPD(t, openTest(t, Config{}))
	noGroups := testPD(t, openTest(t, Config{Fabric: struct{ Fabric }{sim.New(1)}}))
	peer := verbs.GIDOf(netip.MustParseAddr("fd00::1"))
	for _, tc := range []struct {
		name  string
		a     verbs.AHAttr
		kind  error
		names string
	}{
		{"port", verbs.AHAttr{DGID: peer, Port: 2}, ucs.ErrInvalid, "port 2"},
		{"index", verbs.AHAttr{DGID: peer, Port: 1, SGIDIndex: 1}, ucs.ErrInvalid, "SGIDIndex 1"},
		{"no gid", verbs.AHAttr{Port: 1}, ucs.ErrInvalid, "no DGID"},
		{"multicast", verbs.AHAttr{DGID: verbs.GIDOf(netip.MustParseAddr("ff02::1")), Port: 1}, ucs.ErrUnsupported, "ff02::1"},
		{"multicast of IPv4", verbs.AHAttr{DGID: verbs.GIDOf(netip.MustParseAddr("224.0.0.5")), Port: 1}, ucs.ErrUnsupported, "224.0.0.5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pd := p
			if tc.a.DGID.Addr().IsMulticast() {
				pd = noGroups
			}
			_, err := pd.CreateAH(tc.a)
			refused(t, err, tc.kind, tc.names)
		})
	}
}

// TestAddressHandles: ids find their handles, stale ones nothing.
func TestAddressHandles(t *testing.T) {
	d := openTest(t, Config{Limits: Limits{AHs: 40}})
	p := testPD(t, d)
	gid, err := d.GID(1, 0)
	require.NoError(t, err)
	a := verbs.AHAttr{DGID: gid, DLID: 3, Port: 1}
	var hs []verbs.AH
	for range 40 {
		h, err := p.CreateAH(a)
		require.NoError(t, err)
		hs = append(hs, h)
		assert.NotZero(t, h.ID())
	}
	_, err = p.CreateAH(a)
	refused(t, err, ucs.ErrNoResource, "40 are open")
	refused(t, p.Close(), ucs.ErrBusy, "40 objects")
	for _, h := range hs {
		require.Same(t, h, d.ahs.find(h.ID()))
		require.Nil(t, d.ahs.find(h.ID()^1), "another version")
		assert.Equal(t, a, d.ahs.find(h.ID()).attr)
		require.NoError(t, h.Close())
		require.NoError(t, h.Close())
		require.Nil(t, d.ahs.find(h.ID()))
	}
}

func TestSenderOf(t *testing.T) {
	d := openTest(t, Config{})
	own, err := d.GID(1, 0)
	require.NoError(t, err)
	area := func(src, dst netip.Addr) []byte {
		b := make([]byte, wire.GRHLen)
		wire.GRH(b).Put(&wire.Network{
			Src: netip.AddrPortFrom(src, 0), Dst: netip.AddrPortFrom(dst, 0), TOS: 9, TTL: 60, FlowLabel: 0x12345,
		}, 100)
		return b
	}
	peer := netip.MustParseAddr("fd00::7")
	wc := verbs.WC{Flags: verbs.WCGRH, SLID: 0x8123, SrcQP: 17}
	a, err := d.senderOf(1, &wc, area(peer, own.Addr()))
	require.NoError(t, err)
	assert.Equal(t, verbs.AHAttr{
		DGID: verbs.GIDOf(peer), DLID: 0x8123, Port: 1, HopLimit: 64, TrafficClass: 9, FlowLabel: 0x12345,
	}, a)
	_, err = d.senderOf(1, &wc, area(peer, netip.MustParseAddr("ff02::9")))
	require.NoError(t, err, "a multicast")

	p := testPD(t, d)
	for _, tc := range []struct {
		name  string
		wc    verbs.WC
		grh   []byte
		names string
	}{
		{"no flag", verbs.WC{}, area(peer, own.Addr()), "no GRH"},
		{"short", wc, area(peer, own.Addr())[:39], "39 bytes"},
		{"nothing", wc, make([]byte, 40), "without an IP header"},
		{"not for us", wc, area(peer, netip.MustParseAddr("fd00::8")), "fd00::8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := p.CreateAHFromWC(1, &tc.wc, tc.grh)
			refused(t, err, ucs.ErrInvalid, tc.names)
		})
	}
	_, err = p.CreateAHFromWC(2, &wc, area(own.Addr(), own.Addr()))
	refused(t, err, ucs.ErrInvalid, "port 2")
	h, err := p.CreateAHFromWC(1, &wc, area(own.Addr(), own.Addr()))
	require.NoError(t, err)
	assert.Equal(t, own, d.ahs.find(h.ID()).attr.DGID)
	require.NoError(t, h.Close())
}

func BenchmarkFindAH(b *testing.B) {
	d := openTest(b, Config{})
	gid, _ := d.GID(1, 0)
	h, err := testPD(b, d).CreateAH(verbs.AHAttr{DGID: gid, Port: 1})
	require.NoError(b, err)
	closeAtEnd(b, h)
	for b.Loop() {
		if d.ahs.find(h.ID()) == nil {
			b.Fatal("lost")
		}
	}
}
