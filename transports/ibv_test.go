package transports

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/verbs/ibv"
)

func TestIBVConfig(t *testing.T) {
	for text, want := range map[string]ibv.Config{
		"":                   {},
		"UCX_IB_GID_INDEX=3": {GIDIndex: 3, HasGIDIndex: true},
		"UCX_IB_GID_INDEX=0": {HasGIDIndex: true},
		"UCX_IB_PKEY=0x8001": {PKey: 0x8001},
		"UCX_IB_SL=5":        {SL: 5},
		"UCX_IB_GID_INDEX=auto UCX_IB_TRAFFIC_CLASS=106 UCX_IB_SL=auto": {TrafficClass: 106},
	} {
		s, _, err := config.Load(config.Options{Env: strings.Fields(text)}, ibvSettings)
		require.NoError(t, err, text)
		c := IBVConfig(s)
		require.Equal(t, want, c, text)
		require.NoError(t, c.Validate())
	}
	for _, text := range []string{"UCX_IB_GID_INDEX=256", "UCX_IB_SL=16", "UCX_IB_PKEY=0", "UCX_IB_TRAFFIC_CLASS=-1"} {
		_, _, err := config.Load(config.Options{Env: []string{text}}, ibvSettings)
		require.Error(t, err, text)
	}
}
