package ibv

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

func TestBestGID(t *testing.T) {
	at := func(index int, kind gidKind, addr string) gidEntry {
		return gidEntry{verbs.GIDOf(netip.MustParseAddr(addr)), index, kind}
	}
	v1, local := at(0, gidRoCEv1, "192.0.2.1"), at(1, gidRoCEv2, "fe80::1")
	six, four, other := at(2, gidRoCEv2, "fd77::1"), at(3, gidRoCEv2, "192.0.2.1"), at(5, gidRoCEv2, "192.0.2.2")
	for name, c := range map[string]struct {
		list []gidEntry
		want int // -1: none
	}{
		"empty":                   {nil, -1},
		"RoCE v1 alone":           {[]gidEntry{v1, at(4, gidIB, "fe80::2")}, -1},
		"unused entry":            {[]gidEntry{{kind: gidRoCEv2}}, -1},
		"link-local at worst":     {[]gidEntry{v1, local}, 1},
		"routable first":          {[]gidEntry{local, six}, 2},
		"IPv4 before IPv6":        {[]gidEntry{local, six, four}, 3},
		"the first of equals":     {[]gidEntry{v1, local, four, other}, 3},
		"loopback before nothing": {[]gidEntry{v1, at(7, gidRoCEv2, "127.0.0.1")}, 7},
	} {
		e, ok := bestGID(c.list)
		require.Equal(t, c.want >= 0, ok, name)
		if ok {
			require.Equal(t, c.want, e.index, name)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	good := Config{GIDIndex: 255, HasGIDIndex: true, SL: 15, TrafficClass: 255, PKey: 0xffff}
	require.NoError(t, good.Validate())
	bad := Config{GIDIndex: 256, HasGIDIndex: true, SL: 16, PKey: 0x8000}
	err := bad.Validate()
	require.ErrorIs(t, err, ucs.ErrInvalid)
	require.ErrorContains(t, err, "256")
	require.ErrorContains(t, err, "16")
	require.ErrorContains(t, err, "partition key 0x8000")
}

// TestBuilt: a program without the tag has a provider that says so.
func TestBuilt(t *testing.T) {
	p := New(Config{})
	require.Equal(t, ProviderName, p.Name())
	infos, err := p.Devices()
	switch built := Built(); {
	case built != nil:
		require.ErrorIs(t, built, ErrNotBuilt)
		require.ErrorIs(t, built, ucs.ErrUnsupported)
		require.Empty(t, infos)
		require.ErrorIs(t, err, ErrNotBuilt)
		_, err = p.Open(verbs.DeviceInfo{Provider: ProviderName, Name: "mlx5_0"})
		require.ErrorIs(t, err, ErrNotBuilt)
	case len(infos) == 0:
		require.Error(t, err, "without a device there is a reason")
	}
}
