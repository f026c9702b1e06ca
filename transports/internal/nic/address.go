package nic

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// Address is the address of an interface: its port, and its QP there. The device part holds
// what is the same in all processes of a host, so that a peer stores it once.
type Address struct {
	Port PortAddress
	// Seg is the length of the interface's receives in bytes; 0: a packet's payload.
	Seg uint32
	// Worker is the worker of the interface.
	Worker uct.UUID
	// QPN is the QP that receives datagrams of peers.
	QPN verbs.QPN
}

// Layout of both parts, little-endian; docs/wire/rc.md.
const (
	addrOffVersion  = 0
	addrOffFeatures = 1
	addrOffKind     = 2 // the fabric, and addrGoucx
	addrOffMTU      = 3 // MTU, long MTU << 4
	addrOffSeg      = 4
	addrOffGID      = 8
	addrOffScope    = 24
	deviceLen       = 32 + checksumLen

	addrGoucx = 0x80

	addrOffQPN      = 16
	addrOffLID      = 19
	addrOffProcess  = 21
	addrOffID       = 29
	ifaceLen        = addrOffProcess + checksumLen
	ifaceLenProcess = addrOffID + gidPrefix + checksumLen

	gidPrefix = 8 // bytes of a GID that hold the subnet prefix; the others are the interface id

	// AddressLen is the length of a packed device part. IfaceLenMin and IfaceLenMax bound the
	// length of an iface part.
	AddressLen  = deviceLen
	IfaceLenMin = ifaceLen
	IfaceLenMax = ifaceLenProcess
)

var addressFormat = protocol.Format{Name: "device address of rc and ud", Version: 4}

// AppendDevice appends the device part.
func (a *Address) AppendDevice(b []byte) []byte {
	start, le, p := len(b), binary.LittleEndian, a.Port
	if p.Fabric == FabricProcess { // differ between processes: part of the iface part
		clear(p.GID[gidPrefix:])
		p.ScopeID = 0
	}
	kind := byte(p.Fabric)
	if p.Goucx {
		kind |= addrGoucx
	}
	b = append(b, addressFormat.Version, 0, kind, byte(p.MTU|p.LongMTU<<4))
	b = le.AppendUint32(b, a.Seg)
	b = append(b, p.GID[:]...)
	b = le.AppendUint64(b, p.ScopeID)
	return AppendChecksum(b, start)
}

// AppendIface appends the iface part.
func (a *Address) AppendIface(b []byte) []byte {
	start, le := len(b), binary.LittleEndian
	b = append(b, a.Worker[:]...)
	b = append(b, byte(a.QPN), byte(a.QPN>>8), byte(a.QPN>>16))
	b = le.AppendUint16(b, a.Port.LID)
	if a.Port.Fabric == FabricProcess {
		b = le.AppendUint64(b, a.Port.ScopeID)
		b = append(b, a.Port.GID[gidPrefix:]...)
	}
	return AppendChecksum(b, start)
}

// Parse decodes both parts, which must have exactly the right length. The error names the
// invalid field. It is a [protocol.Error] for an address of another version, or with an unknown
// required feature.
func (a *Address) Parse(u uct.Address) error {
	le, d, i := binary.LittleEndian, u.Device, u.Iface
	if len(d) <= addrOffFeatures {
		return fmt.Errorf("damaged address: device part of %d bytes, want %d", len(d), deviceLen)
	}
	if err := addressFormat.Check(d[addrOffVersion], protocol.Features(d[addrOffFeatures])); err != nil {
		return err
	}
	if len(d) != deviceLen {
		return fmt.Errorf("damaged address: device part of %d bytes, want %d", len(d), deviceLen)
	}
	if err := VerifyChecksum(d); err != nil {
		return fmt.Errorf("damaged address: device part: %w", err)
	}
	p := PortAddress{
		Fabric: Fabric(d[addrOffKind] &^ addrGoucx), Goucx: d[addrOffKind]&addrGoucx != 0,
		MTU: verbs.MTU(d[addrOffMTU] & 0xf), LongMTU: verbs.MTU(d[addrOffMTU] >> 4),
		GID: verbs.GID(d[addrOffGID:addrOffScope]), ScopeID: le.Uint64(d[addrOffScope:]),
	}
	want := ifaceLen
	if p.Fabric == FabricProcess {
		want = ifaceLenProcess
	}
	if len(i) != want {
		return fmt.Errorf("damaged address: %d bytes, want %d", len(i), want)
	}
	if err := VerifyChecksum(i); err != nil {
		return fmt.Errorf("damaged address: %w", err)
	}
	within := verbs.GID{}
	if p.Fabric == FabricProcess {
		if p.ScopeID != 0 || [gidPrefix]byte(p.GID[gidPrefix:]) != [gidPrefix]byte{} {
			return fmt.Errorf("peer's device address: place %#x, GID %v", p.ScopeID, p.GID.Addr())
		}
		p.ScopeID = le.Uint64(i[addrOffProcess:])
		within = p.GID
		copy(p.GID[gidPrefix:], i[addrOffID:])
	}
	p.LID = le.Uint16(i[addrOffLID:])
	long := p.LongMTU == 0 || p.LongMTU > p.MTU && p.LongMTU.Bytes() != 0
	if p.Fabric >= numFabrics || p.MTU.Bytes() == 0 || p.MTU > verbs.MTU4096 || p.GID == within || !long {
		return fmt.Errorf("peer's device address: fabric %d, MTU %d, long MTU %d, GID %v", p.Fabric, uint8(p.MTU), uint8(p.LongMTU), p.GID.Addr())
	}
	qpn := verbs.QPN(i[addrOffQPN]) | verbs.QPN(i[addrOffQPN+1])<<8 | verbs.QPN(i[addrOffQPN+2])<<16
	if qpn == 0 || qpn >= verbs.MulticastQPN {
		return fmt.Errorf("peer's address: queue pair %#x", uint32(qpn))
	}
	*a = Address{Port: p, Seg: le.Uint32(d[addrOffSeg:]), Worker: uct.UUID(i[:addrOffQPN]), QPN: qpn}
	return nil
}

// Name returns a name of the interface that is unique among all interfaces and incarnations of
// their processes.
func (a *Address) Name() (n [16]byte) {
	n = a.Worker
	le, g := binary.LittleEndian, a.Port.GID[:]
	le.PutUint64(n[:], le.Uint64(n[:])^mix(le.Uint64(g)^mix(le.Uint64(g[8:])))) // devices number their QPs alike, so the GID is part of the name
	le.PutUint32(n[8:], le.Uint32(n[8:])^uint32(a.QPN))
	le.PutUint16(n[12:], le.Uint16(n[12:])^a.Port.LID)
	return n
}

// Digest returns an 8-byte digest of Name, never 0.
func (a *Address) Digest() uint64 {
	n := a.Name()
	return max(1, mix(binary.LittleEndian.Uint64(n[:])^mix(binary.LittleEndian.Uint64(n[8:]))))
}

// QKey returns the Q_Key of the QP, which follows from the address. The top bit is clear:
// Q_Keys with it are privileged.
func (a *Address) QKey() uint32 { return uint32(mix(a.Digest())) &^ (1 << 31) }

// mix spreads the bits of x over all bits of the result.
//
// Source: splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
