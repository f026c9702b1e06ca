package ud

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/uct/ucttest"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// over gives the devices of one provider.
func over(c soft.Config) nic.Providers {
	p := soft.New(c)
	return func(*config.Set, *zap.Logger) []verbs.Provider { return []verbs.Provider{p} }
}

func inproc() nic.Providers { return over(soft.Config{Link: soft.LinkInproc}) }

func loopback() nic.Providers {
	return over(soft.Config{Link: soft.LinkUDP, Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1})})
}

// settingsOf are the defaults but for env.
func settingsOf(t testing.TB, env ...string) *config.Set {
	s, _, err := config.Load(config.Options{Env: env, Dirs: []string{}}, settings)
	require.NoError(t, err)
	return s
}

// impatient notices dead peers within that time.
func impatient(t testing.TB, within string) *config.Set {
	return settingsOf(t, "UCX_UD_TIMEOUT="+within, "UCX_UD_KEEPALIVE_INTERVAL=500ms")
}

func TestConformance(t *testing.T) {
	ucttest.Run(t, ucttest.Factory{Component: Component(loopback()), Settings: impatient(t, "4s")})
}

func TestConformanceInproc(t *testing.T) {
	suitetest.Nightly(t)
	ucttest.Run(t, ucttest.Factory{
		Component: Component(inproc()), Column: "ud-inproc", Settings: impatient(t, "4s"), Messages: 50_000,
	})
}

// TestConformanceLossy runs the suite over a UDP link that loses, doubles, delays and
// damages packets.
func TestConformanceLossy(t *testing.T) {
	suitetest.Nightly(t)
	ucttest.Run(t, ucttest.Factory{
		Component: Component(faulty(soft.LinkUDP, 0.01)), Column: "ud-lossy", Settings: impatient(t, "4s"), Late: true,
		Messages: 5000, Themes: []string{"am", "order", "pending", "flush", "active", "close"},
	})
}

// TestConformanceThreads: the same for the ifaces of Threads, whose queue pairs are in thread domains.
func TestConformanceThreads(t *testing.T) {
	suitetest.Nightly(t)
	for _, r := range []uct.Resources{{Domain: uct.ExclusiveDomain, Spares: 1}, {Domain: uct.PairedDomain}, {Domain: uct.NoDomain}} {
		t.Run(fmt.Sprint(r.Domain), func(t *testing.T) {
			ucttest.Run(t, ucttest.Factory{Component: Component(inproc()), Column: "ud-inproc", Settings: impatient(t, "4s"), Messages: 20_000, Resources: r})
		})
	}
}

func TestGateAllocs(t *testing.T) {
	ucttest.Gates(t, ucttest.Factory{Component: Component(inproc()), Settings: impatient(t, "4s")})
}
