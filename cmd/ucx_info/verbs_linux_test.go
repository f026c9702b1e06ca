package main

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// listSoft lists the devices of the software RNIC as JSON.
func listSoft(t *testing.T) []verbsView {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run([]string{"-d", "-t", "soft", "--json"}, &out, io.Discard))
	var doc struct {
		Verbs []verbsView `json:"verbs_devices"`
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &doc))
	return doc.Verbs
}

func TestSoftDevices(t *testing.T) {
	all := map[string]verbsView{}
	for _, v := range listSoft(t) {
		all[v.Link+" "+v.Address] = v
	}
	require.Contains(t, all, "inproc random")
	require.Contains(t, all, "udp 127.0.0.1")
	lo := all["udp 127.0.0.1"]
	assert.Equal(t, "lo", lo.Net)
	assert.Equal(t, []int{4096, 20480}, []int{lo.MTU, lo.LongMTU})
	assert.Equal(t, "active", lo.State)
	assert.Equal(t, int64(16), lo.Limits["reads_and_atomics"])
	assert.Zero(t, lo.Port)
}

// The settings reach the devices.
func TestSoftDevicesBySettings(t *testing.T) {
	t.Setenv("UCX_SOFT_ADDR", "127.0.0.1")
	t.Setenv("UCX_SOFT_LINK", "udp")
	t.Setenv("UCX_SOFT_MTU", "1024")
	t.Setenv("UCX_SOFT_MAX_RD_ATOMIC", "3")
	t.Setenv("UCX_SOFT_MAX_INLINE", "32")
	vs := listSoft(t)
	require.Len(t, vs, 1)
	assert.Equal(t, []int{1024, 0}, []int{vs[0].MTU, vs[0].LongMTU})
	assert.Equal(t, int64(3), vs[0].Limits["reads_and_atomics"])
	assert.Equal(t, int64(32), vs[0].Limits["inline"])

	var out bytes.Buffer
	require.NoError(t, run([]string{"-d"}, &out, io.Discard))
	assert.Contains(t, out.String(), "#  Verbs device: lo\n#      Provider: soft\n#          Link: udp\n")
	assert.Contains(t, out.String(), "#       Address: 127.0.0.1\n#      UDP port: random\n")
	assert.Contains(t, out.String(), "#                  mtu: 1024 bytes\n")
	assert.Contains(t, out.String(), "# Memory domain: self\n", "and the transports")

	t.Setenv("UCX_SOFT_ADDR", "192.0.2.77")
	err := run([]string{"-d"}, &out, io.Discard)
	require.ErrorIs(t, err, ucs.ErrInvalid)
	assert.ErrorContains(t, err, "192.0.2.77")
}

// infiniBand is a device whose port is no Ethernet.
type infiniBand struct{ verbs.Context }

func (infiniBand) Port(uint8) (verbs.PortAttr, error) {
	return verbs.PortAttr{State: verbs.PortActive, Link: verbs.LinkInfiniBand}, nil
}

// TestInfiniBand: a device that no transport uses has the reason, not an address.
func TestInfiniBand(t *testing.T) {
	v := verbsView{Provider: "ibv", Device: "mlx5_0"}
	require.NoError(t, v.describe(infiniBand{}, 0))
	assert.Contains(t, v.Refused, "its link layer is InfiniBand")
	assert.Empty(t, v.Address)
}
