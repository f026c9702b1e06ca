//go:build linux && cgo && ibverbs

package conformance

import (
	"slices"
	"testing"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucp/ucptest"
	"github.com/goucx/goucx/uct"
)

// TestUCPOverRC and TestUCPOverUD run the suite of package ucp between two workers on the device.
func TestUCPOverRC(t *testing.T) { runUCP(t, "rc") }
func TestUCPOverUD(t *testing.T) { runUCP(t, "ud") }

// runUCP holds ucp over the transport to its column of ucp/ucptest/matrix.txt.
func runUCP(t *testing.T, transport string) {
	c, port := over(t, transport)
	ucptest.Run(t, ucptest.Factory{
		Column: transport, Providers: []uct.Component{c}, Env: append(slices.Clone(impatient), "UCX_NET_DEVICES="+port),
		Reads: transport == "rc", Takes: true, Modes: []ucp.ThreadMode{ucp.ThreadSingle},
	})
}
