package nic

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// Domain is a protection domain of an open device.
type Domain struct {
	t            *Transport
	settings     *config.Set
	log          *zap.Logger
	dev          *device
	ctx          verbs.Context
	idleNotifier verbs.IdleNotifier // nil: the device needs no notice
	prober       verbs.PeerProber   // nil: the device cannot tell whether a peer is gone
	pd           verbs.PD
	attr         uct.DomainAttr
	keys         keyTable

	mu      sync.Mutex // guards the rest
	ifaces  int
	regions int
	closed  bool
	ports   map[uint8]verbs.PortAttr // as PortAddress found them
}

func openDomain(c *Component, name string, conf uct.DomainConfig) (*Domain, error) {
	dev, err := c.devices.acquire(c.t.Name, name, conf)
	if err != nil {
		return nil, fmt.Errorf("open %s domain %s: %w", c.t.Name, name, err)
	}
	ctx := dev.ctx
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s domain %s: %w", c.t.Name, name, err), dev.release(c.t.Name))
	}
	d := &Domain{t: &c.t, settings: conf.Settings, log: conf.Log, dev: dev, ctx: ctx, pd: pd, ports: map[uint8]verbs.PortAttr{}}
	most := int(min(ctx.Attr().MaxMRSize, math.MaxInt-pageSlack))
	d.attr = uct.DomainAttr{
		Register: true, NeedMem: true, Allocate: true, MaxRegister: most, MaxAllocate: most, KeyLen: packedKeyLen, LazyKeyCheck: true,
		ThreadDomains: uct.ThreadDomainLimits(ctx.Attr().ThreadDomains),
	}
	d.idleNotifier, _ = ctx.(verbs.IdleNotifier)
	if ctx.Info().Link == "udp" {
		d.prober, _ = ctx.(verbs.PeerProber)
	}
	if d.log == nil {
		d.log = zap.NewNop()
	}
	return d, nil
}

// pageSlack keeps a size that is rounded up to a page of any size within an int.
const pageSlack = 1 << 30

// Attr implements uct.Domain.
func (d *Domain) Attr() *uct.DomainAttr { return &d.attr }

// Context returns the open device.
func (d *Domain) Context() verbs.Context { return d.ctx }

// NotifyIdle notifies the device that the program is about to sleep on armed queues.
func (d *Domain) NotifyIdle() {
	if d.idleNotifier != nil {
		d.idleNotifier.NotifyIdle()
	}
}

// PD returns the domain's protection domain.
func (d *Domain) PD() verbs.PD { return d.pd }

// Log returns the log for the control path; never nil.
func (d *Domain) Log() *zap.Logger { return d.log }

// Settings returns the settings that the domain was opened with; nil: defaults.
func (d *Domain) Settings() *config.Set { return d.settings }

// DeviceName returns the name of a port of the device, as "eth0:1".
func (d *Domain) DeviceName(port uint8) string { return fmt.Sprintf("%s:%d", d.ctx.Info().Name, port) }

// Ifaces returns the active ports.
func (d *Domain) Ifaces() (infos []uct.IfaceInfo, refused []uct.Refusal) {
	for n := 1; n <= d.ctx.Attr().Ports; n++ {
		port := uint8(n)
		a, err := d.ctx.Port(port)
		switch {
		case err != nil:
		case a.State != verbs.PortActive:
			err = fmt.Errorf("the port is %v: connect the cable, and set its network interface up", a.State)
		case a.Link == verbs.LinkInfiniBand:
			err = verbs.ErrInfiniBand
		}
		if err != nil {
			refused = append(refused, uct.Refusal{Transport: d.t.Name, Device: d.DeviceName(port), Reason: err.Error()})
			continue
		}
		infos = append(infos, uct.IfaceInfo{Transport: d.t.Name, ID: d.t.ID, Device: d.DeviceName(port), Kind: uct.DeviceNet})
	}
	return infos, refused
}

// OpenIface opens the transport's interface on a port.
func (d *Domain) OpenIface(i uct.IfaceInfo, c uct.IfaceConfig) (uct.Iface, error) {
	if c.Handler == nil {
		return nil, fmt.Errorf("open %s iface: no handler: %w", d.t.Name, ucs.ErrInvalid)
	}
	if c.Settings == nil {
		c.Settings = d.settings
	}
	for n := 1; n <= d.ctx.Attr().Ports; n++ {
		if i.Transport == d.t.Name && i.Device == d.DeviceName(uint8(n)) {
			return d.open(uint8(n), c)
		}
	}
	return nil, fmt.Errorf("open %s iface %s/%s: no such port: %w", d.t.Name, i.Transport, i.Device, ucs.ErrInvalid)
}

func (d *Domain) open(port uint8, c uct.IfaceConfig) (uct.Iface, error) {
	if err := d.enter(&d.ifaces); err != nil {
		return nil, fmt.Errorf("open %s iface: %w", d.t.Name, err)
	}
	f, err := d.t.Open(d, port, c)
	if err != nil {
		d.leave(&d.ifaces)
		return nil, fmt.Errorf("open %s iface: %w", d.t.Name, err)
	}
	return f, nil
}

// IfaceClosed must be called when an interface that Transport.Open opened is closed.
func (d *Domain) IfaceClosed() { d.leave(&d.ifaces) }

// enter increments a counter of objects that keep the domain open.
func (d *Domain) enter(n *int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("the domain: %w", ucs.ErrClosed)
	}
	*n++
	return nil
}

func (d *Domain) leave(n *int) {
	d.mu.Lock()
	*n--
	d.mu.Unlock()
}

// Close implements uct.Domain. Keys that are still held become invalid.
func (d *Domain) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if d.ifaces > 0 || d.regions > 0 {
		return fmt.Errorf("close %s domain: %d ifaces and %d regions open: %w", d.t.Name, d.ifaces, d.regions, ucs.ErrBusy)
	}
	d.closed = true
	if err := errors.Join(d.pd.Close(), d.dev.release(d.t.Name)); err != nil {
		return fmt.Errorf("close %s domain: %w", d.t.Name, err)
	}
	return nil
}
