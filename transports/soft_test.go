package transports

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
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
		"ENGINE": "none", "ADDR": "localhost", "GIDS": "2", "PORT": "65536", "ICRC": "on", "ADAPTER": "mlx4", "TD_QP_LOCK": "2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("UCX_SOFT_"+name, value)
			_, _, err := config.Load(config.Options{}, softSettings)
			require.ErrorContains(t, err, "UCX_SOFT_"+name)
		})
	}
}

// TestSoftMLX5: libmlx5's variables count with the adapter mlx5 only. What is out of range is
// refused by its name when devices are listed.
func TestSoftMLX5(t *testing.T) {
	t.Setenv("MLX5_TOTAL_UUARS", "600")
	assert.Nil(t, softConfig(t).Adapter)
	t.Setenv("UCX_SOFT_ADAPTER", "mlx5")
	_, err := soft.New(softConfig(t)).Devices()
	require.ErrorIs(t, err, ucs.ErrInvalid)
	require.ErrorContains(t, err, "MLX5_TOTAL_UUARS=600, want 1 to 512")

	for name, value := range map[string]string{
		"MLX5_TOTAL_UUARS": "6", "MLX5_NUM_LOW_LAT_UUARS": "2", "MLX5_SHUT_UP_BF": "1", "UCX_SOFT_TD_QP_LOCK": "n",
	} {
		t.Setenv(name, value)
	}
	assert.Equal(t, &soft.MLX5{TotalUUARs: "6", LowLatencyUUARs: "2", ShutUpBF: true, NoQPLock: true}, softConfig(t).Adapter)
	t.Setenv("MLX5_SHUT_UP_BF", "0")
	assert.False(t, softConfig(t).Adapter.ShutUpBF)
}
