package ucttest

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/uct"
)

// patience bounds every wait of the suite during which nothing arrives. What a case waits for
// takes milliseconds; the rest allows for loaded machines. Only tests of the suite change it.
var patience = 60 * time.Second

// enough times patience bounds a wait during which something arrives.
const enough = 5

// settlePasses is the number of idle passes after which nothing more arrives within one process.
const settlePasses = 5000

// yieldPasses is the number of idle passes before the processor is yielded. On a busy machine each
// yield may cost several time slices. Some events, like a peer's end, are detected only after
// thousands of passes.
const yieldPasses = 256

// env is the environment of one case.
type env struct {
	testing.TB
	factory Factory
	reason  string // why the case does not apply
}

// notApplicable ends the case; reason describes the transport.
func (e *env) notApplicable(reason string) {
	e.Helper()
	e.reason = reason
	e.Skip("not applicable: " + reason)
}

// needs ends the case if the iface lacks one of ops.
func (e *env) needs(n *node, ops uct.Ops, what string) {
	e.Helper()
	if !n.attr.Ops.Has(ops) {
		e.notApplicable("does not carry " + what)
	}
}

// needsPrompt ends the case if messages may arrive late.
func (e *env) needsPrompt() {
	e.Helper()
	if e.factory.Late {
		e.notApplicable("what is sent may come late or twice")
	}
}

// domain opens a domain for the case.
func (e *env) domain() uct.Domain {
	e.Helper()
	infos, refused := e.factory.Component.Domains(e.factory.Settings)
	for _, info := range infos {
		d, err := e.factory.Component.OpenDomain(info, uct.DomainConfig{Settings: e.factory.Settings})
		require.NoError(e, err, "open domain %s", info.Name)
		if e.find(d) != nil {
			e.Cleanup(func() { require.NoError(e, d.Close(), "close domain") })
			return d
		}
		require.NoError(e, d.Close())
	}
	require.FailNow(e, "no domain has the iface under test", "device %q, refused: %v", e.factory.Device, refused)
	return nil
}

func (e *env) find(d uct.Domain) *uct.IfaceInfo {
	infos, _ := d.Ifaces()
	for i := range infos {
		if e.factory.Device == "" || infos[i].Device == e.factory.Device {
			return &infos[i]
		}
	}
	return nil
}

func (e *env) info(d uct.Domain) uct.IfaceInfo { return *e.find(d) }

// node opens an iface on a new domain.
func (e *env) node() *node {
	e.Helper()
	return e.nodeOn(e.domain())
}

// nodeOn opens an iface on d.
func (e *env) nodeOn(d uct.Domain) *node {
	e.Helper()
	n := &node{env: e, dom: d, inFlightOps: make(map[uct.Token]*flight)}
	_, _ = rand.Read(n.worker[:])
	var err error
	n.iface, err = d.OpenIface(e.info(d), uct.IfaceConfig{
		Handler: n, Worker: n.worker, Settings: e.factory.Settings, Resources: e.factory.Resources,
	})
	require.NoError(e, err, "open iface")
	e.Cleanup(func() {
		n.checkClean()
		require.NoError(e, n.iface.Close(), "close iface")
		for t := range n.pinned {
			n.unpin(t)
		}
	})
	n.attr = n.iface.Attr()
	return n
}

// pair returns two ifaces that reach each other, or the same iface twice if an iface reaches only
// itself.
func (e *env) pair() (a, b *node) {
	e.Helper()
	a = e.node()
	b = e.node()
	if ok, _ := a.iface.Reachable(b.address()); ok {
		return a, b
	}
	ok, reason := a.iface.Reachable(a.address())
	require.True(e, ok, "reaches neither another iface nor itself: %s", reason)
	return a, a
}

// linked is pair and an endpoint from a to b. It ends the case if the iface lacks one of ops.
func (e *env) linked(ops uct.Ops, what string) (a, b *node, l *link) {
	e.Helper()
	a, b = e.pair()
	e.needs(a, ops, what)
	return a, b, e.connect(a, b)
}

// two is pair for cases that need two different ifaces.
func (e *env) two() (a, b *node) {
	e.Helper()
	if a, b = e.pair(); a == b {
		e.notApplicable("an iface reaches only itself")
	}
	return a, b
}

// initiators returns n endpoints of n ifaces that reach memory of owner's domain: each towards
// owner, or, if ifaces reach only themselves, on owner's domain.
func (e *env) initiators(owner *node, n int) []*link {
	e.Helper()
	links := make([]*link, n)
	for i := range links {
		a := e.node()
		if ok, _ := a.iface.Reachable(owner.address()); ok {
			links[i] = e.connect(a, owner)
			continue
		}
		a = e.nodeOn(owner.dom)
		links[i] = e.connect(a, a)
	}
	return links
}

// until progresses nodes until cond holds.
func (e *env) until(what string, cond func() bool, nodes ...*node) {
	e.Helper()
	if !drive(cond, nodes...) {
		for i, n := range nodes {
			for _, f := range n.failures {
				e.Errorf("failure reported to node %d: %v", i, f.Err)
			}
		}
		e.Fatalf("not within %v: %s", patience, what)
	}
}

// settle progresses nodes until everything in flight has arrived.
func (e *env) settle(nodes ...*node) {
	for i := range settlePasses {
		progress(nodes...)
		if i%yieldPasses == 0 {
			cpu.Yield()
		}
	}
}

// drive progresses nodes until cond holds. It returns false if cond does not hold in time.
func drive(cond func() bool, nodes ...*node) bool {
	begun := ucs.Now()
	lastArrival, arrived := begun, false
	idle := 0
	for i := 1; !cond(); i++ {
		if idle++; progress(nodes...) > 0 {
			idle, arrived = 0, true
		}
		if idle == yieldPasses {
			idle = 0
			cpu.Yield()
		}
		if i%256 != 0 {
			continue
		}
		now := ucs.Now()
		if arrived {
			lastArrival, arrived = now, false
		}
		if now.Sub(lastArrival) > patience || now.Sub(begun) > enough*patience {
			return cond()
		}
	}
	return true
}

func progress(nodes ...*node) (n int) {
	for _, nd := range nodes {
		n += nd.progress(64)
	}
	return n
}
