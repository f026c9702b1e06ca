package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

// A transport that only UCX has is told once, at a level that few look at.
func TestOpenTellsTransportsThatOnlyUCXHas(t *testing.T) {
	t.Setenv("UCX_TLS", "tcp,self")
	core, logs := observer.New(zap.InfoLevel)
	c, err := ucp.Open(ucp.Config{Providers: transports.All(), Log: zap.New(core)})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	require.Equal(t, 1, logs.Len())
	assert.Equal(t, zap.InfoLevel, logs.All()[0].Level)
	assert.Contains(t, logs.All()[0].Message, "tcp: a transport of UCX that goucx does not have")
	assert.Len(t, c.Refused(), len(transports.All()), "tcp, and all but self for want of a name")

	t.Setenv("UCX_TLS", "tcp")
	_, err = ucp.Open(ucp.Config{Providers: transports.All()})
	require.ErrorIs(t, err, ucp.ErrUnsupported)
	assert.ErrorContains(t, err, "UCX_TLS=tcp (environment UCX_TLS) leaves no transport")
	assert.ErrorContains(t, err, "goucx has no tcp: between hosts rc and ud run over UDP (UCX_TLS=rc)")
}

// A context logs one warning for an interface that cannot be opened: its workers then use another
// transport.
func TestOpenWarnsOfInterfacesThatCannotBeOpened(t *testing.T) {
	t.Setenv("UCX_SHM_SOCKET_DIR", "/nowhere")
	core, logs := observer.New(zap.WarnLevel)
	c, err := ucp.Open(ucp.Config{Providers: transports.All(), Log: zap.New(core)})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	for range 2 {
		_, err = c.NewWorker(ucp.WorkerConfig{})
		require.NoError(t, err)
	}
	require.Equal(t, 1, logs.Len())
	assert.Contains(t, logs.All()[0].Message, "UCX_SHM_SOCKET_DIR=/nowhere")
}
