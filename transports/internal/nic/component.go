package nic

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// Providers gives the verbs providers that settings ask for; a nil set has the
// defaults, a nil log is silent.
type Providers func(s *config.Set, log *zap.Logger) []verbs.Provider

// Transport is what one transport over verbs adds to a Component.
type Transport struct {
	// Name and Aliases select it, ID stands in worker addresses.
	Name    string
	Aliases []string
	ID      uct.TransportID
	// Settings are its rows.
	Settings config.Table
	// RMA are the operations that reach registered memory of peers, Atomic64 the
	// atomics.
	RMA      uct.Ops
	Atomic64 uct.AtomicSet
	// Open opens an interface on a port of d. The domain counts it until
	// Domain.IfaceClosed.
	Open func(d *Domain, port uint8, c uct.IfaceConfig) (uct.Iface, error)
}

// Component is a transport on some devices.
type Component struct {
	t       Transport
	devices *Devices
	shared  []config.Table
}

// NewComponent gives the provider of transport t on the devices of ds, which read
// the settings shared.
func NewComponent(t Transport, ds *Devices, shared ...config.Table) *Component {
	return &Component{t, ds, shared}
}

// Name: see uct.Component.
func (c *Component) Name() string { return c.t.Name }

// Aliases: see uct.Component.
func (c *Component) Aliases() []string { return c.t.Aliases }

// Settings: see uct.Component.
func (c *Component) Settings() []config.Table {
	return append([]config.Table{c.t.Settings}, c.shared...)
}

// Domains: see uct.Component. There is one for each device.
func (c *Component) Domains(s *config.Set) (infos []uct.DomainInfo, refused []uct.Refusal) {
	for _, p := range c.devices.providers(s, nil) {
		ds, err := p.Devices()
		if err != nil {
			refused = append(refused, uct.Refusal{Transport: c.t.Name, Device: p.Name(), Reason: err.Error()})
		}
		for i := range ds {
			infos = append(infos, uct.DomainInfo{Component: c.t.Name, Name: ds[i].Name})
		}
	}
	return infos, refused
}

// OpenDomain opens the device of that name.
func (c *Component) OpenDomain(i uct.DomainInfo, conf uct.DomainConfig) (uct.Domain, error) {
	if i.Component != c.t.Name {
		return nil, fmt.Errorf("open %s domain %s/%s: %w", c.t.Name, i.Component, i.Name, ucs.ErrInvalid)
	}
	return openDomain(c, i.Name, conf)
}
