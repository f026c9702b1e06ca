package ucttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/transports/shm"
	"github.com/goucx/goucx/uct"
)

// mutant is a transport with one fault planted.
type mutant struct {
	name  string
	finds string // the case that must fail
	wraps
}

// wraps put something around the parts of a transport; nil: nothing.
type wraps struct {
	domain   func(uct.Domain) uct.Domain
	iface    func(uct.Iface) uct.Iface
	handler  func(uct.Handler) uct.Handler
	endpoint func(uct.Endpoint) uct.Endpoint
	mem      func(uct.Mem) uct.Mem
}

// The wrapped objects.
type (
	component struct {
		uct.Component
		w wraps
	}
	domain struct {
		uct.Domain
		w wraps
	}
	iface struct {
		uct.Iface
		w wraps
	}
)

func (c component) OpenDomain(i uct.DomainInfo, dc uct.DomainConfig) (uct.Domain, error) {
	d, err := c.Component.OpenDomain(i, dc)
	if err == nil && c.w.domain != nil {
		d = c.w.domain(d)
	}
	return &domain{d, c.w}, err
}

func (d *domain) OpenIface(i uct.IfaceInfo, c uct.IfaceConfig) (uct.Iface, error) {
	if d.w.handler != nil && c.Handler != nil {
		c.Handler = d.w.handler(c.Handler)
	}
	f, err := d.Domain.OpenIface(i, c)
	if err == nil && d.w.iface != nil {
		f = d.w.iface(f)
	}
	return &iface{f, d.w}, err
}

func (d *domain) Register(b []byte, f uct.MemFlags) (uct.Mem, error) {
	return d.wrap(d.Domain.Register(b, f))
}

func (d *domain) Allocate(n int, f uct.MemFlags) (uct.Mem, error) {
	return d.wrap(d.Domain.Allocate(n, f))
}

func (d *domain) wrap(m uct.Mem, err error) (uct.Mem, error) {
	if err == nil && d.w.mem != nil {
		m = d.w.mem(m)
	}
	return m, err
}

func (i *iface) NewEndpoint(a uct.Address) (uct.Endpoint, error) {
	e, err := i.Iface.NewEndpoint(a)
	if err == nil && i.w.endpoint != nil {
		e = i.w.endpoint(e)
	}
	return e, err
}

// TestMutants: each planted fault is found by the case that is meant to find
// it, which passes without the fault.
func TestMutants(t *testing.T) {
	runMutants(t, self.Component(), mutants)
	runMutants(t, shm.Component(), failureMutants)
}

func runMutants(t *testing.T, c uct.Component, ms []mutant) {
	long := patience
	t.Cleanup(func() { patience = long })
	for _, m := range ms {
		t.Run(m.name, func(t *testing.T) {
			patience = long
			r, reason := tryCase(t, Factory{Component: c}, m.finds)
			require.Empty(t, reason, "%s does not apply", m.finds)
			require.False(t, r.Failed(), "%s without the fault: %s", m.finds, r.Text())
			patience = 300 * time.Millisecond
			r, _ = tryCase(t, Factory{Component: component{c, m.wraps}}, m.finds)
			require.True(t, r.Failed(), "%s does not find the fault", m.finds)
		})
	}
}

// TestWrapperAlone: the wrapping itself breaks nothing.
func TestWrapperAlone(t *testing.T) {
	f := Factory{Component: component{self.Component(), wraps{}}}
	for _, th := range themes {
		if th.name == "process" {
			continue // starts TestConformance of the binary
		}
		for _, c := range th.cases {
			r, _ := tryCase(t, f, th.name+"/"+c.name)
			require.False(t, r.Failed(), "%s/%s: %s", th.name, c.name, r.Text())
		}
	}
}

// TestBadSettingsAreErrors: what a provider cannot open fails the case, with its
// reason, instead of passing.
func TestBadSettingsAreErrors(t *testing.T) {
	r, _ := tryCase(t, Factory{Component: self.Component(), Device: "none"}, "am/short")
	require.True(t, r.Failed())
	require.Contains(t, r.Text(), "none")
}
