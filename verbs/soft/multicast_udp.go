package soft

import (
	"errors"
	"fmt"
	"net"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// Multicast over UDP. A device has a socket for each group that it is in (udp.OpenGroup), and
// all of them are in a set, so that a pass that receives looks at them by one system call. The
// device has no set while it is in no group: its passes are those of a device without
// multicast.
//
// A group's socket is closed only when no goroutine receives from it: leave removes it from the
// set, and then waits until the receive token is released.

// netInterface returns the network interface of a UDP device.
func (l udpLink) netInterface() (*net.Interface, error) {
	i, err := net.InterfaceByName(l.d.info.Net)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w: %w", l.d.info.Net, err, ucs.ErrUnreachable)
	}
	return i, nil
}

// groupPeer returns the address of a group for datagrams from socket u.
func (l udpLink) groupPeer(u *udp.Socket, group verbs.GID) (udp.Peer, error) {
	i, err := l.netInterface()
	if err != nil {
		return udp.Peer{}, err
	}
	return u.GroupPeer(group, i)
}

// join opens the socket of a group.
func (l udpLink) join(group verbs.GID) error {
	d := l.d
	if !d.hasFamily(group) {
		return fmt.Errorf("the device has no address of this family: %w", ucs.ErrUnreachable)
	}
	i, err := l.netInterface()
	if err != nil {
		return err
	}
	u, err := udp.OpenGroup(group.Addr(), i, socketBuffer)
	if err != nil {
		return err
	}
	u.Tap = d.conf.Tap
	if d.conf.ICRC == ICRCStrict {
		u.WatchIdentifications()
	}
	if err = l.receiveFrom(u); err != nil {
		return errors.Join(err, u.Close())
	}
	return nil
}

// hasFamily reports whether one of the device's addresses is of the family of g.
func (d *device) hasFamily(g verbs.GID) bool {
	for _, u := range d.sockets {
		if u.Addr.Addr().Is4() == g.Addr().Is4() {
			return true
		}
	}
	return false
}

// receiveFrom makes the device receive from the socket of a group: the engine, and the
// background goroutine while it sleeps.
func (l udpLink) receiveFrom(u *udp.Socket) error {
	d := l.d
	if all := d.groups.sockets.Load(); all != nil {
		return all.Add(u)
	}
	all, err := udp.NewSet()
	if err != nil {
		return err
	}
	if err = all.Add(u); err == nil && d.background.poller != nil {
		err = d.background.poller.Watch(all)
	}
	if err != nil {
		return errors.Join(err, all.Close())
	}
	d.groups.sockets.Store(all)
	d.manySockets.Store(true)
	return nil
}

// leave closes the socket of a group.
func (l udpLink) leave(group verbs.GID) error {
	d := l.d
	all := d.groups.sockets.Load()
	var u *udp.Socket
	for _, u = range all.All() {
		if u.GID() == group {
			break
		}
	}
	all.Remove(u)
	last := len(all.All()) == 0
	if last {
		d.groups.sockets.Store(nil)
		d.manySockets.Store(len(d.sockets) > 1)
		if p := d.background.poller; p != nil {
			_ = p.Watch(nil) // adds nothing, so it does not fail
		}
	}
	d.own.token.awaitRelease()
	for k := range u.Counts {
		d.udp.Counts[k].Add(u.Counts[k].Load())
	}
	err := u.Close()
	if last {
		err = errors.Join(err, all.Close())
	}
	return err
}

// handleGroupDatagrams processes the packets of datagrams to one group and returns their number.
// Each attached queue pair gets a copy of each packet, but not its sender.
func (e *engine) handleGroupDatagrams(all []*udp.Datagram, now ucs.Time) (n int) {
	d, p := e.d, &e.rxPacket
	for _, g := range all {
		own, members := d.sent(g), d.groups.of(g.GID())
		for i := range g.Packets() {
			n++
			if !d.decodeGroupPacket(g, i, p) {
				continue
			}
			for _, q := range members {
				if own && q.num == p.SrcQP || !e.acquireOrDefer(q, g, i) {
					continue
				}
				q.handlePacket(p, now)
				q.transmitAndRelease()
			}
		}
	}
	return n
}

// sent reports whether g was sent by this device.
func (d *device) sent(g *udp.Datagram) bool {
	for _, u := range d.sockets {
		if g.From == udp.SourceOf(u.Addr) {
			return true
		}
	}
	return false
}

// decodeGroupPacket checks and decodes packet i of a datagram to a group. It returns false and
// counts the reason if this is no datagram to the members.
func (d *device) decodeGroupPacket(g *udp.Datagram, i int, p *packet) bool {
	f, ok := decodePacket(g, i, p, d.icrcCheck(true))
	switch {
	case !ok:
		d.own.counts.add(cntDroppedICRC, 1)
	case f == wire.FaultShort:
		d.own.counts.add(cntDroppedShort, 1)
	case f != wire.FaultNone:
		d.own.counts.add(cntDroppedOpcode, 1)
	case p.DestQP != verbs.MulticastQPN:
		d.own.counts.add(cntDroppedQPN, 1)
	default:
		p.sgid, p.dgid, p.slid, p.tos, p.ttl, p.flow = g.From.GID(), g.GID(), g.From.LID(), g.TOS, g.TTL, g.Flow
		return true
	}
	return false
}
