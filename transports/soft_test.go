package transports

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

func softConfig(t *testing.T) soft.Config {
	t.Helper()
	set, _, err := config.Load(config.Options{}, softSettings)
	require.NoError(t, err)
	return SoftConfig(set, nil)
}

// The defaults of the settings are those of the device.
func TestSoftDefaults(t *testing.T) {
	c := softConfig(t)
	require.NoError(t, c.Validate())
	assert.Equal(t, soft.Config{MaxInline: 220, Limits: soft.Limits{RdAtomic: 16}, Depth: 1024}, c)
}

func TestSoftConfig(t *testing.T) {
	for name, value := range map[string]string{
		"LINK": "udp", "MTU": "2048", "MAX_INLINE": "16", "MAX_RD_ATOMIC": "4", "DEPTH": "64", "WINDOW": "100",
		"ENGINE": "thread", "ADDR": "127.0.0.1", "GIDS": "all", "PORT": "4791", "ICRC": "strict",
	} {
		t.Setenv("UCX_SOFT_"+name, value)
	}
	c := softConfig(t)
	require.NoError(t, c.Validate())
	assert.Equal(t, soft.Config{
		Link: soft.LinkUDP, MTU: verbs.MTU2048, MaxInline: 16, Limits: soft.Limits{RdAtomic: 4}, Depth: 64, Window: 100,
		Engine: soft.EngineThread, Addr: netip.MustParseAddr("127.0.0.1"), AllGIDs: true, Port: 4791, ICRC: soft.ICRCStrict,
	}, c)
}

func TestSoftRefused(t *testing.T) {
	for name, value := range map[string]string{
		"LINK": "ib", "MTU": "1500", "MAX_INLINE": "221", "MAX_RD_ATOMIC": "0", "DEPTH": "1", "WINDOW": "8193",
		"ENGINE": "none", "ADDR": "localhost", "GIDS": "2", "PORT": "65536", "ICRC": "on",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("UCX_SOFT_"+name, value)
			_, _, err := config.Load(config.Options{}, softSettings)
			require.ErrorContains(t, err, "UCX_SOFT_"+name)
		})
	}
}
