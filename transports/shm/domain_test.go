package shm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

func newTestDomain(t testing.TB) *domain {
	d, err := Component().OpenDomain(uct.DomainInfo{Component: transportName, Name: transportName}, uct.DomainConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d.(*domain)
}
