package rc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/uct/ucttest"
)

// impatient notices dead peers within seconds.
func impatient(t testing.TB, env ...string) *config.Set {
	return settingsOf(t, append(env, "UCX_RC_TIMEOUT=300ms", "UCX_RC_KEEPALIVE_INTERVAL=500ms", "UCX_RC_CONNECT_TIMEOUT=1500ms")...)
}

// fewMessages is the number of messages of the long cases where queues are short: each few of
// them take a change of goroutines.
const fewMessages = 20_000

func settingsOf(t testing.TB, env ...string) *config.Set {
	s, _, err := config.Load(config.Options{Env: env, Dirs: []string{}}, settings)
	require.NoError(t, err)
	return s
}

func TestConformance(t *testing.T) {
	ucttest.Run(t, ucttest.Factory{Component: Component(loopback), Settings: impatient(t)})
}

func TestConformanceInproc(t *testing.T) {
	suitetest.Nightly(t)
	ucttest.Run(t, ucttest.Factory{Component: Component(inproc()), Column: "rc-inproc", Settings: impatient(t)})
}

// TestConformanceOfRestlessConnections: the same where connections are put to sleep
// as soon as they are idle, queues are short, and buffers few.
func TestConformanceOfRestlessConnections(t *testing.T) {
	suitetest.Nightly(t)
	s := impatient(t, "UCX_RC_MAX_PAIRS=1", "UCX_RC_TX_QUEUE_LEN=16", "UCX_RC_TX_BUFS=16", "UCX_RC_RX_QUEUE_LEN=32", "UCX_RC_SEG_SIZE=1k")
	ucttest.Run(t, ucttest.Factory{Component: Component(inproc()), Column: "rc-inproc", Messages: fewMessages, Settings: s})
}

// TestConformanceThreads: the same for the ifaces of Threads, whose queue pairs are in thread domains.
func TestConformanceThreads(t *testing.T) {
	suitetest.Nightly(t)
	for _, r := range []uct.Resources{{Domain: uct.ExclusiveDomain, Spares: 1}, {Domain: uct.PairedDomain}, {Domain: uct.NoDomain}} {
		t.Run(fmt.Sprint(r.Domain), func(t *testing.T) {
			ucttest.Run(t, ucttest.Factory{Component: Component(inproc()), Column: "rc-inproc", Settings: impatient(t), Messages: fewMessages, Resources: r})
		})
	}
}

func TestGateAllocs(t *testing.T) {
	ucttest.Gates(t, ucttest.Factory{Component: Component(inproc()), Settings: impatient(t)})
}
