package ucttest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

var activeCases = []testCase{
	{"count", activeCount},
	{"peers", activePeers},
}

// activeCount: Activate and Deactivate change the count by one each; an endpoint alone does not
// change it.
func activeCount(e *env) {
	a, b := e.pair()
	require.Zero(e, a.iface.ActiveEndpoints())
	l := e.connect(a, b)
	before := a.iface.ActiveEndpoints()
	for i := 1; i <= 3; i++ {
		a.iface.Activate()
		require.Equal(e, before+i, a.iface.ActiveEndpoints())
	}
	for i := 2; i >= 0; i-- {
		a.iface.Deactivate()
		require.Equal(e, before+i, a.iface.ActiveEndpoints())
	}
	l.Close()
	e.settle(a, b)
	require.Zero(e, a.iface.ActiveEndpoints())
}

// activePeers: a connection that a peer initiated counts until the peer closes it.
func activePeers(e *env) {
	a, b := e.two()
	e.needs(a, uct.OpAMShort, "AM short")
	require.Zero(e, b.iface.ActiveEndpoints())
	first := e.connect(a, b)
	first.firstMessage()
	require.Equal(e, 1, b.iface.ActiveEndpoints())
	second := e.connect(e.node(), b)
	second.firstMessage()
	require.Equal(e, 2, b.iface.ActiveEndpoints())
	first.Close()
	e.until("one connection to end", func() bool { return b.iface.ActiveEndpoints() == 1 }, a, b, second.from)
	second.Close()
	e.until("all connections to end", func() bool { return b.iface.ActiveEndpoints() == 0 }, a, b, second.from)
}
