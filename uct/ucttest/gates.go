package ucttest

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/uct"
)

// Gates requires that every data-path operation and its progress make zero allocations. Call it
// from a test named TestGate.... It skips under the race detector, which allocates.
func Gates(t *testing.T, f Factory) {
	if race.Enabled {
		t.Skip("allocations are not the product's under the race detector")
	}
	e := &env{TB: t, factory: f}
	a, b, l := e.linked(0, "")
	b.quiet, a.countOnly, b.countOnly = true, true, true
	r := e.anyRegion(b, a)
	g := &gate{link: l, region: r, p: make([]byte, 64), tokens: make([]uct.Token, 1)}
	g.v = a.pieces(0, make([]byte, max(64, a.attr.AM.MinZcopy)), 1)
	for _, op := range g.operations() {
		if a.attr.Ops.Has(op.need) {
			g.checkAllocs(op)
		}
	}
	if a.attr.Ops.Has(uct.OpAMShort | uct.OpPending) {
		g.checkPendingAllocs()
	}
}

// gate holds what its operations need, allocated beforehand.
type gate struct {
	*link
	region *region
	p      []byte
	v      []uct.Vec
	tokens []uct.Token
	st     uct.Status
}

// gateOperation is one call with its arguments prepared. It is a plain function, because a closure
// would allocate within the test.
type gateOperation struct {
	name string
	need uct.Ops
	run  func(g *gate) uct.Status
}

func (g *gate) operations() []gateOperation {
	ops := []gateOperation{
		{"AMShort", uct.OpAMShort, func(g *gate) uct.Status { return g.AMShort(1, 2, g.p[:8]) }},
		{"AMShort, 64 bytes", uct.OpAMShort, func(g *gate) uct.Status { return g.AMShort(1, 2, g.p[:min(64, g.from.attr.AM.Short)]) }},
		{"AMUint64", uct.OpAMShort, func(g *gate) uct.Status { return g.AMUint64(1, 2, 3) }},
		{"ReserveAM and CommitAM", uct.OpAMBcopy, func(g *gate) uct.Status {
			mem, st := g.ReserveAM(1, 2, 64)
			if st == ok {
				g.CommitAM(copy(mem, g.p))
			}
			return st
		}},
		{"AMZcopy", uct.OpAMZcopy, func(g *gate) uct.Status { return g.AMZcopy(1, 2, g.p[:min(8, g.from.attr.AM.MaxHeader)], g.v, 1) }},
		{"Flush", uct.OpFlushLocal, func(g *gate) uct.Status { return g.Flush(uct.FlushLocal, 1) }},
		{"Flush remote", uct.OpFlushRemote, func(g *gate) uct.Status { return g.Flush(uct.FlushRemote, 1) }},
		{"Iface.Flush", uct.OpFlushLocal, func(g *gate) uct.Status { return g.from.iface.Flush(1) }},
		{"Fence", uct.OpFence, func(g *gate) uct.Status { return g.Fence() }},
		{"idle Progress", 0, func(*gate) uct.Status { return ok }},
	}
	if g.region == nil {
		return ops
	}
	ops = append(ops, []gateOperation{
		{"PutShort", uct.OpPutShort, func(g *gate) uct.Status { return g.PutShort(g.p[:8], g.region.base, g.region.key) }},
		{"PutUint64", uct.OpPutShort, func(g *gate) uct.Status { return g.PutUint64(1, g.region.base, g.region.key) }},
		{"PutBcopy", uct.OpPutBcopy, func(g *gate) uct.Status { return g.PutBcopy(g.p, g.region.base, g.region.key, 1) }},
		{"PutZcopy", uct.OpPutZcopy, func(g *gate) uct.Status { return g.PutZcopy(g.v, g.region.base, g.region.key, 1) }},
		{"GetShort", uct.OpGetShort, func(g *gate) uct.Status { return g.GetShort(g.p[:8], g.region.base, g.region.key) }},
		{"GetUint64", uct.OpGetShort, func(g *gate) uct.Status { return second(g.GetUint64(g.region.base, g.region.key, 1)) }},
		{"GetBcopy", uct.OpGetBcopy, func(g *gate) uct.Status { return g.GetBcopy(g.p, g.region.base, g.region.key, 1) }},
		{"GetZcopy", uct.OpGetZcopy, func(g *gate) uct.Status { return g.GetZcopy(g.v, g.region.base, g.region.key, 1) }},
		{"Atomic64", uct.OpAtomics, func(g *gate) uct.Status { return g.Atomic64(uct.AtomicAdd, 1, g.region.base, g.region.key) }},
		{"Fetch64", uct.OpAtomics, func(g *gate) uct.Status {
			return second(g.Fetch64(uct.AtomicAdd, 1, 0, g.region.base, g.region.key, 1))
		}},
	}...)
	if !g.from.attr.Post32.Has(uct.AtomicAdd) {
		return ops
	}
	return append(ops, []gateOperation{
		{"Atomic32", uct.OpAtomics, func(g *gate) uct.Status { return g.Atomic32(uct.AtomicAdd, 1, g.region.base, g.region.key) }},
		{"Fetch32", uct.OpAtomics, func(g *gate) uct.Status {
			return second(g.Fetch32(uct.AtomicAdd, 1, 0, g.region.base, g.region.key, 1))
		}},
	}...)
}

// checkAllocs warms op up and then counts its allocations.
func (g *gate) checkAllocs(op gateOperation) {
	bad := ok
	once := func() {
		for g.st = op.run(g); g.st == noResource; g.st = op.run(g) {
			progress(g.from, g.to)
		}
		if g.st != ok && g.st != inProgress {
			bad = g.st
		}
		progress(g.from, g.to)
	}
	for range 5000 {
		once()
	}
	assert.Zero(g.env, testing.AllocsPerRun(2000, once), op.name)
	assert.Equal(g.env, ok, bad, op.name)
}

// checkPendingAllocs fills the queue and empties it again through HandlePending.
func (g *gate) checkPendingAllocs() {
	g.from.onPending = func(ts []uct.Token) int {
		if g.AMUint64(1, 2, 3) != ok {
			return 0
		}
		g.tokens = g.tokens[:0]
		return 1
	}
	once := func() {
		for range maxFill {
			if g.AMUint64(1, 2, 3) != ok {
				break
			}
		}
		g.tokens = append(g.tokens[:0], 1)
		if g.PendingAdd(1) != ok {
			g.tokens = g.tokens[:0]
		}
		for i := 0; len(g.tokens) > 0 && i < maxFill; i++ {
			progress(g.from, g.to)
		}
		for progress(g.from, g.to) > 0 { // deliver the rest
		}
	}
	for range 20 {
		once()
	}
	assert.Zero(g.env, testing.AllocsPerRun(100, once), "PendingAdd and HandlePending")
}
