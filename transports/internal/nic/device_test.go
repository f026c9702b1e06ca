package nic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// TestDevicesAreShared: two transports have one device, two domains of a transport
// or with other settings have not, and the last who leaves closes it.
func TestDevicesAreShared(t *testing.T) {
	ds := Share(inproc)
	components := map[string]*Component{}
	for _, name := range []string{"a", "b"} {
		components[name] = NewComponent(Transport{Name: name}, ds)
	}
	open := func(name string, s *config.Set) *Domain {
		d, err := components[name].OpenDomain(uct.DomainInfo{Component: name, Name: "inproc"}, uct.DomainConfig{Settings: s})
		require.NoError(t, err)
		return d.(*Domain)
	}
	other, _, err := config.Load(config.Options{})
	require.NoError(t, err)
	a1, b1, a2, b3 := open("a", nil), open("b", nil), open("a", nil), open("b", other)
	require.Equal(t, a1.Context(), b1.Context())
	require.NotEqual(t, a1.Context(), a2.Context())
	require.NotEqual(t, a1.Context(), b3.Context())
	require.NotEqual(t, a2.Context(), b3.Context())

	pd := func(c verbs.Context) error {
		p, err := c.AllocPD()
		if err == nil {
			err = p.Close()
		}
		return err
	}
	shared := a1.Context()
	require.NoError(t, a1.Close())
	require.NoError(t, pd(shared))
	require.NoError(t, a1.Close(), "closed before")
	require.NoError(t, pd(shared))
	a4 := open("a", nil)
	require.Equal(t, shared, a4.Context())
	require.NoError(t, b1.Close())
	require.NoError(t, a4.Close())
	require.ErrorIs(t, pd(shared), ucs.ErrClosed)
	require.NoError(t, a2.Close())
	require.NoError(t, b3.Close())
	require.Empty(t, ds.open)

	_, err = components["a"].OpenDomain(uct.DomainInfo{Component: "a", Name: "none"}, uct.DomainConfig{})
	require.ErrorIs(t, err, ucs.ErrInvalid)
}
