package self

import (
	"fmt"
	"sync"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

const (
	name   = "self"
	device = "memory"
)

// component is the provider.
type component struct{}

// Component gives the provider of the self transport.
func Component() uct.Component { return component{} }

// Name: see uct.Component.
func (component) Name() string { return name }

// Aliases: see uct.Component.
func (component) Aliases() []string { return nil }

// Settings: see uct.Component.
func (component) Settings() config.Table { return settings }

// Domains: see uct.Component.
func (component) Domains(*config.Set) ([]uct.DomainInfo, []uct.Refusal) {
	return []uct.DomainInfo{{Component: name, Name: name}}, nil
}

// OpenDomain: see uct.Component.
func (component) OpenDomain(d uct.DomainInfo, c uct.DomainConfig) (uct.Domain, error) {
	if d.Component != name || d.Name != name {
		return nil, fmt.Errorf("open self domain %s/%s: %w", d.Component, d.Name, ucs.ErrInvalid)
	}
	return &domain{settings: c.Settings}, nil
}

// domain holds the memory that the worker registers for itself.
type domain struct {
	settings *config.Set
	mu       sync.Mutex // guards ifaces
	ifaces   int
}

// Ifaces: see uct.Domain.
func (d *domain) Ifaces() ([]uct.IfaceInfo, []uct.Refusal) {
	return []uct.IfaceInfo{{Transport: name, ID: uct.TransportSelf, Device: device, Kind: uct.DeviceSelf}}, nil
}

// OpenIface: see uct.Domain.
func (d *domain) OpenIface(info uct.IfaceInfo, c uct.IfaceConfig) (uct.Iface, error) {
	if info.Transport != name || info.Device != device {
		return nil, fmt.Errorf("open self iface %s/%s: %w", info.Transport, info.Device, ucs.ErrInvalid)
	}
	i, err := openIface(d, c)
	if err != nil {
		return nil, fmt.Errorf("open self iface: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ifaces++
	return i, nil
}

func (d *domain) ifaceClosed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ifaces--
}
