package self

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

const (
	name   = "self"
	device = "memory0" // UCX's device name
)

// component is the provider.
type component struct{}

// Component returns the provider of the self transport.
func Component() uct.Component { return component{} }

// Name: see uct.Component.
func (component) Name() string { return name }

// Aliases: see uct.Component.
func (component) Aliases() []string { return nil }

// Settings: see uct.Component.
func (component) Settings() []config.Table { return []config.Table{settings} }

// Domains: see uct.Component.
func (component) Domains(*config.Set) ([]uct.DomainInfo, []uct.Refusal) {
	return []uct.DomainInfo{{Component: name, Name: name}}, nil
}

// OpenDomain: see uct.Component.
func (component) OpenDomain(d uct.DomainInfo, c uct.DomainConfig) (uct.Domain, error) {
	if d.Component != name || d.Name != name {
		return nil, fmt.Errorf("open self domain %s/%s: %w", d.Component, d.Name, ucs.ErrInvalid)
	}
	mem, err := mapped.MapAnonymous(maxRegions * mapped.SlotBytes)
	if err != nil {
		return nil, fmt.Errorf("open self domain: %w", err)
	}
	id, table := mapped.NewID(), mapped.NewTable(mem, func() error { return mapped.Unmap(mem) })
	// The owner of the keys has no socket: no other process asks for them.
	return &domain{settings: c.Settings, id: id, owner: mapped.NewOwner(id, "", table, 0)}, nil
}

// domain holds the regions that the worker registers and the keys of them.
type domain struct {
	settings *config.Set
	id       uct.UUID
	owner    *mapped.Owner
	keys     mapped.Keys

	mu     sync.Mutex // guards the fields below
	ifaces int
	closed bool
}

var domainAttr = uct.DomainAttr{
	Register: true, Allocate: true,
	MaxRegister: math.MaxInt, MaxAllocate: maxAllocate, KeyLen: mapped.KeyLen(0),
}

// Attr: see uct.Domain.
func (d *domain) Attr() *uct.DomainAttr { return &domainAttr }

// Ifaces: see uct.Domain.
func (d *domain) Ifaces() ([]uct.IfaceInfo, []uct.Refusal) {
	return []uct.IfaceInfo{{Transport: name, ID: uct.TransportSelf, Device: device, Kind: uct.DeviceSelf}}, nil
}

// OpenIface: see uct.Domain.
func (d *domain) OpenIface(info uct.IfaceInfo, c uct.IfaceConfig) (uct.Iface, error) {
	if info.Transport != name || info.Device != device {
		return nil, fmt.Errorf("open self iface %s/%s: %w", info.Transport, info.Device, ucs.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("open self iface: %w", ucs.ErrClosed)
	}
	i, err := openIface(d, c)
	if err != nil {
		return nil, fmt.Errorf("open self iface: %w", err)
	}
	d.ifaces++
	return i, nil
}

// Close: see uct.Domain. Idempotent.
func (d *domain) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if n := d.owner.Len(); d.ifaces > 0 || n > 0 {
		return fmt.Errorf("close self domain: %d ifaces and %d regions open: %w", d.ifaces, n, ucs.ErrBusy)
	}
	d.closed = true
	return errors.Join(d.keys.Close(), d.owner.Close())
}
