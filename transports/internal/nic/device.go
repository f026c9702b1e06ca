package nic

import (
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// Devices opens the devices of some providers for transports that share them. An open device
// serves one domain of each transport.
//
// Concurrency: any goroutine.
type Devices struct {
	providers Providers

	mu   sync.Mutex // guards the rest, and users of the devices
	open []*device
	list deviceList
}

// deviceList is the last result of look, with its arguments.
type deviceList struct {
	settings *config.Set
	log      *zap.Logger
	devices  []providerDevice
}

// providerDevice is a device and its provider.
type providerDevice struct {
	verbs.Provider
	info verbs.DeviceInfo
}

// Share returns a Devices on the providers ps, to make several components with.
func Share(ps Providers) *Devices { return &Devices{providers: ps} }

// device is an open device.
type device struct {
	all      *Devices
	name     string
	settings *config.Set // settings that it was opened with
	ctx      verbs.Context
	events   asyncEvents
	users    []string // names of transports
}

// acquire returns an open device with that name that the transport does not use yet. If there is
// none it opens the device.
func (ds *Devices) acquire(transport, name string, c uct.DomainConfig) (*device, error) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	for _, d := range ds.open {
		if d.name == name && d.settings == c.Settings && !slices.Contains(d.users, transport) {
			d.users = append(d.users, transport)
			return d, nil
		}
	}
	ctx, err := ds.openNew(name, c)
	if err != nil {
		return nil, err
	}
	d := &device{all: ds, name: name, settings: c.Settings, ctx: ctx, users: []string{transport}}
	ds.open = append(ds.open, d)
	return d, nil
}

func (ds *Devices) openNew(name string, c uct.DomainConfig) (verbs.Context, error) {
	l := &ds.list
	is := func(d providerDevice) bool { return d.info.Name == name }
	var err error
	if l.settings != c.Settings || l.log != c.Log || !slices.ContainsFunc(l.devices, is) {
		*l = deviceList{settings: c.Settings, log: c.Log}
		l.devices, err = ds.enumerate(c)
	}
	if i := slices.IndexFunc(l.devices, is); i >= 0 {
		return l.devices[i].Open(l.devices[i].info)
	}
	if err == nil {
		err = ucs.ErrInvalid
	}
	return nil, fmt.Errorf("no such device: %w", err)
}

// enumerate lists the devices of all providers. It may return devices along with an error.
func (ds *Devices) enumerate(c uct.DomainConfig) (all []providerDevice, err error) {
	for _, p := range ds.providers(c.Settings, c.Log) {
		infos, why := p.Devices()
		if why != nil {
			err = why
		}
		for _, i := range infos {
			all = append(all, providerDevice{p, i})
		}
	}
	return all, err
}

// release removes a transport from the users, and closes the device after the last one.
func (d *device) release(transport string) error {
	ds := d.all
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d.users = slices.DeleteFunc(d.users, func(u string) bool { return u == transport })
	if len(d.users) > 0 {
		return nil
	}
	ds.open = slices.DeleteFunc(ds.open, func(o *device) bool { return o == d })
	return d.ctx.Close()
}
