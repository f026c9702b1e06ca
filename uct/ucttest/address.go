package ucttest

import (
	"math/rand/v2"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

var addressCases = []testCase{
	{"form", addressForm},
	{"damaged", addressDamaged},
	{"attributes", addressAttributes},
}

// addressForm: both parts are appended, have at most 255 bytes and never change. They differ
// between ifaces, but the device part is the same for one device.
func addressForm(e *env) {
	a := e.node()
	b := e.nodeOn(a.dom)
	for _, n := range []*node{a, b} {
		d, i := n.iface.DeviceAddress([]byte("in")), n.iface.Address([]byte("front"))
		require.Equal(e, "in", string(d[:2]))
		require.Equal(e, "front", string(i[:5]))
		require.LessOrEqual(e, len(d), 2+255)
		require.LessOrEqual(e, len(i), 5+255)
		require.Equal(e, uct.Address{Device: d[2:], Iface: i[5:]}, uct.Address{
			Device: n.iface.DeviceAddress([]byte{}), Iface: n.iface.Address([]byte{}),
		})
	}
	require.Equal(e, a.address().Device, b.address().Device, "one device, two addresses")
	require.NotEqual(e, a.address(), b.address(), "two ifaces, one address")
}

// addressDamaged truncates, extends and flips bits: the address is unreachable, or NewEndpoint
// returns an error, or the endpoint fails. No message arrives, and nothing breaks.
func addressDamaged(e *env) {
	a, b := e.pair()
	a.mayFail = true
	good := b.address()
	e.eachDamage(good, func(bad uct.Address) {
		reachable, reason := a.iface.Reachable(bad)
		if !reachable {
			require.NotEmpty(e, reason, "unreachable without a reason")
		}
		ep, err := a.iface.NewEndpoint(bad)
		if err != nil {
			return
		}
		require.True(e, reachable, "an endpoint to what is unreachable: %x", bad)
		l := &link{Endpoint: ep, env: e, from: a, to: b}
		ep.AMUint64(1, 1, 1)
		l.failed()
		ep.Close()
	})
	e.settle(a, b)
	require.Empty(e, b.inbox, "a damaged address reaches the iface")
	require.Empty(e, a.inbox)
}

// eachDamage calls f with damaged forms of an address.
func (e *env) eachDamage(good uct.Address, f func(uct.Address)) {
	f(uct.Address{})
	random := rand.New(rand.NewPCG(3, 4))
	for part, bytes := range [][]byte{good.Device, good.Iface} {
		try := func(b []byte) {
			bad := good
			if part == 0 {
				bad.Device = b
			} else {
				bad.Iface = b
			}
			f(bad)
		}
		for n := range bytes {
			try(bytes[:n])
		}
		try(append(slices.Clone(bytes), 0))
		try(make([]byte, 255))
		for bit := range len(bytes) * 8 {
			b := slices.Clone(bytes)
			b[bit/8] ^= 1 << (bit % 8)
			try(b)
		}
		for range 200 {
			b := make([]byte, random.IntN(256))
			fill(b, random.Uint64())
			try(b)
		}
	}
}

// addressAttributes: the attributes are consistent with each other.
func addressAttributes(e *env) {
	n := e.node()
	attr := n.attr
	require.Same(e, attr, n.iface.Attr())
	for _, c := range []struct {
		op    uct.Ops
		limit int
	}{
		{uct.OpAMShort, attr.AM.Short},
		{uct.OpAMBcopy, attr.AM.Bcopy},
		{uct.OpAMZcopy, attr.AM.MaxZcopy},
		{uct.OpAMZcopy, attr.AM.MaxVec},
		{uct.OpPutShort, attr.Put.Short},
		{uct.OpPutBcopy, attr.Put.Bcopy},
		{uct.OpPutZcopy, attr.Put.MaxZcopy},
		{uct.OpPutZcopy, attr.Put.MaxVec},
		{uct.OpGetShort, attr.Get.Short},
		{uct.OpGetBcopy, attr.Get.Bcopy},
		{uct.OpGetZcopy, attr.Get.MaxZcopy},
		{uct.OpGetZcopy, attr.Get.MaxVec},
		{uct.OpAtomics, int(attr.Post32 | attr.Post64 | attr.Fetch32 | attr.Fetch64)},
	} {
		require.Equal(e, attr.Ops.Has(c.op), c.limit > 0, "operation %#x with limit %d", c.op, c.limit)
	}
	require.Equal(e, attr.Events != 0, n.iface.EventFD() >= 0)
	require.GreaterOrEqual(e, attr.Estimate.LatencyNS, 0.0)
	require.Positive(e, attr.Estimate.OverheadNS)
	require.Positive(e, attr.Estimate.Dedicated+attr.Estimate.Shared)
}
