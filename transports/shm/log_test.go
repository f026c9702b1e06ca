package shm

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/goucx/goucx/uct"
)

func TestOrderlyEndLogsNothing(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	for range 20 {
		d, err := Component().OpenDomain(uct.DomainInfo{Component: transportName, Name: transportName}, uct.DomainConfig{Log: zap.New(core)})
		require.NoError(t, err)
		m, err := d.Allocate(100, uct.MemRemote)
		require.NoError(t, err)
		require.NoError(t, m.Close())
		require.NoError(t, d.Close())
	}
	require.Empty(t, logs.All())
}
