package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// A key names its owner's domains by the numbers that the addresses of the
// owner's workers give them, so that no two transports' keys are mixed up.
func TestKeyNamesTheDomainsOfTheAddress(t *testing.T) {
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	m, err := c.Allocate(64, ucp.MemConfig{})
	require.NoError(t, err)

	got, err := ucp.KeyDomains(m.Key())
	require.NoError(t, err)
	v, err := wireup.Parse(w.Address())
	require.NoError(t, err)
	want := make(map[uint8]uct.TransportID)
	for _, e := range v.Entries {
		want[e.Device] = e.Transport
	}
	require.GreaterOrEqual(t, len(want), len(transports.All()))
	assert.Equal(t, want, got)
}
