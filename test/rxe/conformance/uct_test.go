//go:build linux && cgo && ibverbs

package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/uct/ucttest"
)

// TestRC and TestUD run the suite of package uct between two interfaces of the device.
func TestRC(t *testing.T) { runUCT(t, "rc") }
func TestUD(t *testing.T) { runUCT(t, "ud") }

// runUCT holds the transport to its column of uct/ucttest/matrix.txt.
func runUCT(t *testing.T, transport string) {
	c, port := over(t, transport)
	s, _, err := config.Load(config.Options{Env: impatient, Dirs: []string{}}, c.Settings()...)
	require.NoError(t, err)
	ucttest.Run(t, ucttest.Factory{Component: c, Device: port, Column: transport, Settings: s})
}
