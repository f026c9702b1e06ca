package soft

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

func TestConfigRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    Config
		want []string // each fault is named
	}{
		{"link", Config{Link: "tcp"}, []string{`Link "tcp"`}},
		{"fabric without one", Config{Link: LinkFabric}, []string{`Link "fabric"`}},
		{"mtu", Config{MTU: 7}, []string{"MTU 7"}},
		{"engine", Config{Engine: 3}, []string{"Engine 3"}},
		{"inline", Config{MaxInline: 221}, []string{"MaxInline 221", "1 to 220"}},
		{"depth", Config{Depth: 15}, []string{"Depth 15", "16 to 65536"}},
		{"window", Config{Window: -1}, []string{"Window -1"}},
		{"limits", Config{Limits: Limits{QPs: 1<<20 + 1, RdAtomic: 17, CQE: -5}}, []string{"Limits.QPs 1048577", "Limits.RdAtomic 17", "Limits.CQE -5"}},
		{"any address", Config{Addr: netip.MustParseAddr("0.0.0.0")}, []string{"Addr 0.0.0.0"}},
		{"group", Config{Addr: netip.MustParseAddr("224.0.0.1")}, []string{"Addr 224.0.0.1"}},
		{"zone", Config{Addr: netip.MustParseAddr("fe80::1%lo")}, []string{"Addr fe80::1%lo"}},
		{"faults", Config{Faults: &Faults{Loss: 2}}, []string{"Loss"}},
		{"two", Config{MTU: 9, Depth: 1}, []string{"MTU 9", "Depth 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := New(tc.c).Devices()
			for _, w := range tc.want {
				refused(t, err, ucs.ErrInvalid, w)
			}
			assert.Equal(t, len(tc.want) > 1 && tc.name != "inline" && tc.name != "depth", strings.Contains(err.Error(), "\n"))
			_, err = New(tc.c).Open(verbs.DeviceInfo{})
			require.ErrorIs(t, err, ucs.ErrInvalid)
		})
	}
}

func TestConfigDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	require.NoError(t, c.Validate())
	assert.Equal(t, 1024, c.Depth)
	assert.Equal(t, 220, c.MaxInline)
	assert.Equal(t, Limits{
		QPs: 1 << 20, CQs: 1 << 20, MRs: 1 << 20, PDs: 1 << 16, AHs: 1 << 20, SRQs: 1 << 16,
		QPWR: 1 << 15, SRQWR: 1 << 15, CQE: 1 << 22, RdAtomic: 16,
	}, c.Limits)
	assert.NotNil(t, c.Log)
	assert.Equal(t, 2048, Config{Depth: 1025}.withDefaults().Depth)
}

func TestDevices(t *testing.T) {
	infos, err := New(Config{}).Devices()
	require.NoError(t, err)
	assert.Equal(t, verbs.DeviceInfo{Provider: "soft", Name: "inproc", Link: "inproc"}, infos[0])
	names := map[string]bool{}
	for _, i := range infos {
		assert.False(t, names[i.Name], i.Name)
		names[i.Name] = true
		assert.Equal(t, "soft", i.Provider)
		assert.Equal(t, i.Link == LinkUDP, i.Net != "")
	}
	infos, err = New(Config{Link: LinkUDP, Addr: netip.MustParseAddr("127.0.0.1")}).Devices()
	require.NoError(t, err)
	require.Len(t, infos, 1)
	assert.Equal(t, LinkUDP, infos[0].Link)

	_, err = New(Config{Addr: netip.MustParseAddr("192.0.2.77")}).Devices()
	refused(t, err, ucs.ErrInvalid, "192.0.2.77")
	_, err = New(Config{}).Open(verbs.DeviceInfo{Name: "mlx5_0"})
	refused(t, err, ucs.ErrInvalid, `"mlx5_0": not in the list`)
}

func TestQueries(t *testing.T) {
	d := openTest(t, Config{MTU: verbs.MTU1024, Limits: Limits{RdAtomic: 4}})
	assert.Equal(t, 4, d.Attr().MaxQPRdAtomic)
	assert.Equal(t, 4, d.Attr().MaxQPInitRdAtomic)
	assert.Equal(t, verbs.MaxSGE, d.Attr().MaxSGE)
	assert.True(t, d.Attr().AckMeansPlaced)
	assert.NotZero(t, d.Attr().NodeGUID)

	a, err := d.Port(1)
	require.NoError(t, err)
	assert.Equal(t, verbs.PortActive, a.State)
	assert.Equal(t, verbs.MTU1024, a.ActiveMTU)
	assert.NotZero(t, a.LID)
	g, err := d.GID(1, 0)
	require.NoError(t, err)
	assert.Equal(t, "fd00:676f:7563:7800", strings.Join(strings.Split(g.Addr().StringExpanded(), ":")[:4], ":"))
	k, err := d.PKey(1, 0)
	require.NoError(t, err)
	assert.Equal(t, uint16(0xffff), k)

	for _, f := range []func() error{
		func() error { _, err := d.Port(0); return err },
		func() error { _, err := d.Port(2); return err },
		func() error { _, err := d.GID(2, 0); return err },
		func() error { _, err := d.GID(1, 1); return err },
		func() error { _, err := d.PKey(2, 0); return err },
		func() error { _, err := d.PKey(1, -1); return err },
	} {
		refused(t, f(), ucs.ErrInvalid, `"inproc"`)
	}
	o := openTest(t, Config{})
	og, err := o.GID(1, 0)
	require.NoError(t, err)
	assert.NotEqual(t, g, og, "devices have addresses of their own")
}
