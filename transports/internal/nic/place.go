package nic

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/verbs"
)

// Fabric says how far a port reaches.
type Fabric uint8

// Fabrics; the numbers travel.
const (
	// FabricNet: whatever routes to its address.
	FabricNet Fabric = iota
	// FabricHost: processes of one host and network namespace (loopback).
	FabricHost
	// FabricProcess: devices of one program.
	FabricProcess
	numFabrics
)

// PortAddress is where a port is found: the device part of an address.
type PortAddress struct {
	Fabric Fabric
	// MTU is the largest payload of a packet.
	MTU verbs.MTU
	// GID and LID address the port.
	GID verbs.GID
	LID uint16
	// Place names the program, or the host and network namespace: a Fabric within
	// them does not reach beyond, and no two have the same GID on a network.
	Place uint64
}

// Layout of a port address, little-endian; docs/wire/rc.md.
const (
	portVersion  = 1
	portOffLID   = 4
	portOffGID   = 6
	portOffPlace = 22
	portOffSum   = 30
	// PortAddressLen is the length of a packed port address.
	PortAddressLen = portOffSum + sumLen
	portOffFabric  = 1
	portOffMTU     = 2
)

// PortAddress gives the address of a port of the device.
func (d *Domain) PortAddress(port uint8) (a PortAddress, err error) {
	p, err := d.ctx.Port(port)
	if err != nil {
		return a, err
	}
	if a.GID, err = d.ctx.GID(port, 0); err != nil {
		return a, err
	}
	a.MTU, a.LID = p.ActiveMTU, p.LID
	switch info := d.ctx.Info(); {
	case info.Link == "inproc" || info.Link == "fabric":
		id := platform.ProcessID()
		a.Fabric, a.Place = FabricProcess, binary.LittleEndian.Uint64(id[:])
	default:
		id := platform.HostID()
		a.Place = binary.LittleEndian.Uint64(id[:]) ^ platform.Self().NetNamespace
		if a.GID.Addr().IsLoopback() {
			a.Fabric = FabricHost
		}
	}
	return a, nil
}

// Append appends the packed form.
func (a *PortAddress) Append(b []byte) []byte {
	start, le := len(b), binary.LittleEndian
	b = append(b, portVersion, byte(a.Fabric), byte(a.MTU), 0)
	b = le.AppendUint16(b, a.LID)
	b = append(b, a.GID[:]...)
	b = le.AppendUint64(b, a.Place)
	return AppendSum(b, start)
}

// Parse reads a packed address, which must be exactly that long. The error names
// what is wrong.
func (a *PortAddress) Parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) != PortAddressLen {
		return fmt.Errorf("damaged address: device part of %d bytes, want %d", len(b), PortAddressLen)
	}
	if err := CheckSum(b); err != nil {
		return fmt.Errorf("damaged address: device part: %w", err)
	}
	if b[0] != portVersion {
		return fmt.Errorf("peer's device address has version %d, ours %d", b[0], portVersion)
	}
	*a = PortAddress{
		Fabric: Fabric(b[portOffFabric]), MTU: verbs.MTU(b[portOffMTU]), LID: le.Uint16(b[portOffLID:]),
		GID: verbs.GID(b[portOffGID:portOffPlace]), Place: le.Uint64(b[portOffPlace:]),
	}
	if a.Fabric >= numFabrics || a.MTU.Bytes() == 0 || a.GID == (verbs.GID{}) {
		return fmt.Errorf("peer's device address: fabric %d, MTU %d, GID %v", a.Fabric, uint8(a.MTU), a.GID.Addr())
	}
	return nil
}

// Reaches says whether the peer's port b may be reached from a, else why not.
func (a *PortAddress) Reaches(b *PortAddress) (bool, string) {
	switch {
	case a.Fabric != b.Fabric:
		return false, "peer's device is on another kind of network"
	case a.Place != b.Place && a.Fabric == FabricProcess:
		return false, "peer's device is in another process"
	case a.Place != b.Place && a.Fabric == FabricHost:
		return false, "peer's loopback device is on another host or in another network namespace"
	case a.Place != b.Place && a.GID == b.GID:
		return false, "peer's device has the same address, on another host or in another network namespace"
	case a.Fabric != FabricProcess && a.GID.Addr().Is4() != b.GID.Addr().Is4():
		return false, "one side has an IPv4 address, the other an IPv6 one"
	}
	return true, ""
}

// AH is the address handle's form of a peer's port.
func (a *PortAddress) AH(port uint8) verbs.AHAttr {
	return verbs.AHAttr{DGID: a.GID, DLID: a.LID, Port: port, HopLimit: 64}
}
