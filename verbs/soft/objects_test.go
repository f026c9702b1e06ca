package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// openTest opens an in-process device that is closed at the end.
func openTest(t testing.TB, c Config) *device {
	t.Helper()
	c.Link = LinkInproc
	p := New(c)
	infos, err := p.Devices()
	require.NoError(t, err)
	require.Len(t, infos, 1)
	ctx, err := p.Open(infos[0])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctx.Close()) })
	return ctx.(*device)
}

// testPD allocates a protection domain that is closed at the end.
func testPD(t testing.TB, d *device) *pd {
	t.Helper()
	p, err := d.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p.(*pd)
}

func TestOpenAndClose(t *testing.T) {
	d := openTest(t, Config{})
	p := testPD(t, d)
	m, err := p.Register(make([]byte, 64), verbs.MRConfig{Access: verbs.LocalWrite})
	require.NoError(t, err)
	require.NoError(t, m.Close())
}
