package nic

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/verbs"
)

// Fabric is the reach of a port.
type Fabric uint8

// Fabrics. The values are part of the wire format.
const (
	// FabricNet: all ports to which the network routes.
	FabricNet Fabric = iota
	// FabricHost: processes of one host and network namespace (loopback).
	FabricHost
	// FabricProcess: devices of one program.
	FabricProcess
	numFabrics
)

// PortAddress is the address of a port.
type PortAddress struct {
	Fabric Fabric
	// MTU is the largest payload of a datagram.
	MTU verbs.MTU
	// LongMTU is the largest payload of a packet of a connected QP, if that is more than MTU;
	// else 0.
	LongMTU verbs.MTU
	// Goucx: the port belongs to a soft device (verbs.PeerGoucx), else to a device of another
	// vendor.
	Goucx bool
	// GID and LID address the port.
	GID verbs.GID
	LID uint16
	// ScopeID identifies the program for FabricProcess, else the host and network namespace.
	// Ports of FabricProcess and FabricHost reach only ports of the same place. Ports of
	// different places with the same GID do not reach each other. On loopback the network
	// addresses are part of it: clones of a virtual machine differ in nothing else.
	ScopeID uint64
}

// PortAddress returns the address of a port of the device.
func (d *Domain) PortAddress(port uint8) (a PortAddress, err error) {
	p, err := d.ctx.Port(port)
	if err != nil {
		return a, err
	}
	if a.GID, err = d.ctx.GID(port, p.GIDIndex); err != nil {
		return a, err
	}
	d.mu.Lock()
	d.ports[port] = p
	d.mu.Unlock()
	a.MTU, a.LongMTU, a.LID, a.Goucx = p.ActiveMTU, p.LongMTU, p.LID, p.PeerFeatures&verbs.PeerGoucx != 0
	switch info := d.ctx.Info(); {
	case info.Link == "inproc" || info.Link == "fabric":
		id := platform.ProcessID()
		a.Fabric, a.ScopeID = FabricProcess, binary.LittleEndian.Uint64(id[8:])
	default:
		id := platform.HostID()
		a.ScopeID = binary.LittleEndian.Uint64(id[:]) ^ platform.NetNamespace()
		if a.GID.Addr().IsLoopback() {
			a.Fabric = FabricHost
			a.ScopeID ^= platform.NetAddresses()
		}
	}
	return a, nil
}

// roceLID is the LID of a soft device on the UDP port of RoCEv2.
const roceLID = 4791

// foreignPort returns the LID of the soft device among a and b, one of which is of another vendor.
func (a *PortAddress) foreignPort(b *PortAddress) uint16 {
	if a.Goucx {
		return a.LID
	}
	return b.LID
}

// PathMTU returns the path MTU of QPs between a and b.
func (a *PortAddress) PathMTU(b *PortAddress) verbs.MTU {
	return min(max(a.MTU, a.LongMTU), max(b.MTU, b.LongMTU))
}

// Reaches reports whether the peer's port b can be reached from a, and why not.
func (a *PortAddress) Reaches(b *PortAddress) (bool, string) {
	switch {
	case a.Fabric != b.Fabric:
		return false, "peer's device is on another kind of network"
	case a.ScopeID != b.ScopeID && a.Fabric == FabricProcess:
		return false, "peer's device is in another process"
	case a.ScopeID != b.ScopeID && a.Fabric == FabricHost:
		return false, "peer's loopback device is on another host or in another network namespace, or network addresses have changed since"
	case a.ScopeID != b.ScopeID && a.GID == b.GID:
		return false, "peer's device has the same address, on another host or in another network namespace"
	case a.Goucx != b.Goucx && a.foreignPort(b) != roceLID:
		return false, "one side is the software RNIC on a UDP port of its own, the other an RDMA device, which knows 4791 only: set UCX_SOFT_PORT=4791"
	case a.Fabric != FabricProcess && a.GID.Addr().Is4() != b.GID.Addr().Is4():
		return false, "one side has an IPv4 address, the other an IPv6 one"
	}
	return true, ""
}

// AH returns the attributes of an address handle for a peer's port, to send from the given local port.
// Domain.PortAddress must have been called for that.
func (d *Domain) AH(port uint8, to *PortAddress) verbs.AHAttr {
	p := d.portAttr(port)
	h := verbs.AHAttr{
		DGID: to.GID, DLID: to.LID, Port: port, HopLimit: 64,
		SGIDIndex: p.GIDIndex, TrafficClass: p.TrafficClass, SL: p.SL,
	}
	if to.Goucx {
		h.PeerFeatures = verbs.PeerGoucx
	}
	return h
}

// PKeyIndex returns the index of the partition key that QPs of a port use. Domain.PortAddress must
// have been called for that.
func (d *Domain) PKeyIndex(port uint8) uint16 { return d.portAttr(port).PKeyIndex }

func (d *Domain) portAttr(port uint8) verbs.PortAttr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ports[port]
}
