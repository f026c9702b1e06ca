package nic

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// Providers returns the verbs providers that the settings select. A nil set has the defaults; a
// nil log discards everything.
type Providers func(s *config.Set, log *zap.Logger) []verbs.Provider

// Transport is the part of a Component that differs between transports over verbs.
type Transport struct {
	// Name and Aliases select the transport by name. Worker addresses contain ID.
	Name    string
	Aliases []string
	ID      uct.TransportID
	// Settings are the settings of the transport.
	Settings config.Table
	// RMA are the operations on registered memory of peers, Atomic64 the atomics among them.
	RMA      uct.Ops
	Atomic64 uct.AtomicSet
	// Open opens an interface on a port of d. The domain counts it until Domain.IfaceClosed is
	// called.
	Open func(d *Domain, port uint8, c uct.IfaceConfig) (uct.Iface, error)
}

// Component is a transport on some devices.
type Component struct {
	t       Transport
	devices *Devices
	shared  []config.Table
}

// NewComponent returns the provider of transport t on the devices of ds. shared are the tables
// of settings that the devices read.
func NewComponent(t Transport, ds *Devices, shared ...config.Table) *Component {
	return &Component{t, ds, shared}
}

// Name implements uct.Component.
func (c *Component) Name() string { return c.t.Name }

// Aliases implements uct.Component.
func (c *Component) Aliases() []string { return c.t.Aliases }

// Settings implements uct.Component.
func (c *Component) Settings() []config.Table {
	return append([]config.Table{c.t.Settings}, c.shared...)
}

// Domains implements uct.Component. It returns one domain for each device.
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

// OpenDomain opens the device with the name in i.
func (c *Component) OpenDomain(i uct.DomainInfo, conf uct.DomainConfig) (uct.Domain, error) {
	if i.Component != c.t.Name {
		return nil, fmt.Errorf("open %s domain %s/%s: %w", c.t.Name, i.Component, i.Name, ucs.ErrInvalid)
	}
	return openDomain(c, i.Name, conf)
}
