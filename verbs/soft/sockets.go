package soft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
)

// openSockets opens a socket on each address, all on the same port. Port 0 means a random
// one that is free on all.
func openSockets(addrs []netip.Addr, port uint16) ([]*udp.Socket, error) {
	for try := 0; ; try++ {
		var all []*udp.Socket
		p := port
		for _, a := range addrs {
			u, err := udp.Open(a, p, socketBuffer)
			if err != nil {
				err = errors.Join(err, closeSockets(all))
				if port == 0 && len(all) > 0 && try < portTries && errors.Is(err, syscall.EADDRINUSE) {
					all = nil
					break
				}
				return nil, err
			}
			all, p = append(all, u), u.LID()
		}
		if all != nil {
			return all, nil
		}
	}
}

// portTries is how many random ports openSockets tries.
const portTries = 64

func closeSockets(all []*udp.Socket) error {
	var errs []error
	for _, u := range all {
		errs = append(errs, u.Close())
	}
	return errors.Join(errs...)
}

// useSockets makes the sockets and their addresses those of the device.
func (d *device) useSockets(all []*udp.Socket) {
	d.sockets, d.udp = all, all[0]
	d.manySockets.Store(len(all) > 1)
	for _, u := range all {
		if d.conf.ICRC == ICRCStrict {
			u.WatchIdentifications()
		}
		u.Tap, u.HasQP = d.conf.Tap, func(n verbs.QPN) bool { return d.qps.find(n) != nil }
	}
	d.gid, d.lid = d.udp.GID(), d.udp.LID()
}

// allSockets returns the sockets of the device's addresses and of its multicast groups.
func (d *device) allSockets() []*udp.Socket {
	all := slices.Clone(d.sockets)
	if groups := d.groups.sockets.Load(); groups != nil {
		all = append(all, groups.All()...)
	}
	return all
}

// SetPort moves a soft device over UDP to another port, on all its addresses; 0: a random
// one. So a program can move one device to port 4791, which peers other than goucx need, and
// leave Config.Port 0 for the others. No object of the device may be open.
//
// Errors: ucs.ErrUnsupported for other devices; ucs.ErrBusy while objects are open; if the
// port cannot be bound, the device keeps the one that it has. After any other error the
// device can only be closed.
func SetPort(c verbs.Context, port uint16) error {
	d, ok := c.(*device)
	if !ok || d.kind != overUDP {
		return fmt.Errorf("set port of device %q, which has no UDP port: %w", c.Info().Name, ucs.ErrUnsupported)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	fail := func(err error) error { return fmt.Errorf("set port %d of soft device %q: %w", port, d.info.Name, err) }
	if d.open.Closed() {
		return fail(ucs.ErrClosed)
	}
	if err := d.open.CheckNone(); err != nil {
		return fail(err)
	}
	if port == d.lid {
		return nil
	}
	all, err := openSockets(d.addrs, port)
	if err != nil {
		return fail(err)
	}
	err = errors.Join(d.stopBackground(), d.link.close())
	d.useSockets(all)
	d.conf.Port = port
	if err = errors.Join(err, d.startBackground()); err != nil {
		return fail(err)
	}
	return nil
}
