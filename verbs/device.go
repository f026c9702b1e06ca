package verbs

import (
	"context"
	"net/netip"

	"github.com/goucx/goucx/ucs/stats"
)

// GID is a port's global identifier; for RoCEv2 over IPv4 the mapped address.
type GID [16]byte

// Addr is the GID as an IP address, IPv4 unmapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// GIDOf is the GID of an IP address.
func GIDOf(a netip.Addr) GID { return a.As16() }

// DeviceInfo names a device that a provider can open.
type DeviceInfo struct {
	// Provider is "soft" or "ibv".
	Provider string
	// Name is unique within the provider.
	Name string
	// Net is the network interface that carries it; "": none.
	Net string
	// Link is what a soft device sends through: "inproc", "udp".
	Link string
}

// DeviceAttr are a device's limits and abilities.
type DeviceAttr struct {
	NodeGUID                                                                                uint64
	MaxMRSize                                                                               uint64
	MaxQP, MaxQPWR, MaxSGE, MaxCQ, MaxCQE, MaxMR, MaxPD, MaxAH, MaxSRQ, MaxSRQWR, MaxSRQSGE int
	// MaxQPRdAtomic is the most MaxDestRdAtomic, MaxQPInitRdAtomic the most
	// MaxRdAtomic.
	MaxQPRdAtomic, MaxQPInitRdAtomic int
	MaxInline                        int
	MaxMessage                       uint32
	Atomic                           AtomicCap
	Ports                            int
	// SRQResize: SRQ.Resize works.
	SRQResize bool
	// AckMeansPlaced: an acknowledged write is visible to the CPU of the peer.
	AckMeansPlaced bool
}

// PortAttr are a port's attributes.
type PortAttr struct {
	State             PortState
	MaxMTU, ActiveMTU MTU
	// LongMTU is the largest path MTU of a connected queue pair, where that is beyond
	// ActiveMTU, towards a port whose LongMTU is as large; else 0.
	LongMTU     MTU
	GIDs, PKeys int
	// LID of a soft device is its UDP port; 0 stands for 4791.
	LID        uint16
	Link       LinkLayer
	MaxMessage uint32
	// PeerFeatures are what peers may set in QPAttr.PeerFeatures and
	// AHAttr.PeerFeatures towards this port: PeerGoucx on a soft device, else 0.
	PeerFeatures uint32
}

// PathMTU is the largest path MTU of a connected queue pair; that of two ports is
// the lesser of theirs.
func (a *PortAttr) PathMTU() MTU { return max(a.ActiveMTU, a.LongMTU) }

// AHAttr is the address of a peer's port.
type AHAttr struct {
	// DGID is the peer's GID, DLID its port on a soft device (0 stands for 4791).
	DGID GID
	DLID uint16
	// SGIDIndex chooses the own GID.
	SGIDIndex int
	// Port of the own device.
	Port         uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32
	// PeerFeatures are those of the receiver of datagrams: PeerGoucx or 0. A
	// connected queue pair goes by QPAttr.PeerFeatures.
	PeerFeatures uint32
}

// AHID names an address handle in work requests.
type AHID uint32

// AH is an address handle.
type AH interface {
	ID() AHID
	// Close destroys it; work requests posted before are carried out.
	Close() error
}

// MR is registered memory. It holds and pins the memory until Close.
type MR interface {
	// LKey names it in pieces of one's own, RKey in work requests of peers.
	LKey() uint32
	RKey() uint32
	// Bytes is the memory, until Close.
	Bytes() []byte
	// Addr is the address by which pieces and peers name the first byte.
	Addr() uint64
	// Close makes the keys invalid at once, and returns when nothing of the device
	// touches the memory any more.
	Close() error
}

// MRConfig is how memory is registered.
type MRConfig struct {
	// Access is what may be done with the memory.
	Access Access
	// IOVA is the address of the first byte, where HasIOVA says that it is given;
	// else it is the memory's own, or 0 with ZeroBased access.
	IOVA uint64
	// HasIOVA says that IOVA is given.
	HasIOVA bool
	// Revocable lets OpLocalInv, and OpSendInv of a peer, make the key invalid. They
	// fail on other regions: a program may rely on what it registered.
	//
	// Source: IBTA vol. 1, 10.6: of regions, those for fast registration alone can be
	// invalidated; rxe and hardware refuse others.
	Revocable bool
}

// PD is a protection domain: keys, queue pairs and address handles of different
// ones do not fit together.
type PD interface {
	// Register pins buf, which is the domain's until MR.Close.
	Register(buf []byte, c MRConfig) (MR, error)
	CreateQP(c QPConfig) (QP, error)
	CreateSRQ(a SRQAttr) (SRQ, error)
	CreateAH(a AHAttr) (AH, error)
	// CreateAHFromWC addresses the sender of a datagram: its completion and the
	// first 40 bytes of its buffer.
	CreateAHFromWC(port uint8, wc *WC, grh []byte) (AH, error)
	// Parent makes a parent domain: the same protection, and what is made in it is
	// used under td. CQConfig.Domain puts a completion queue under it too.
	Parent(td TD) (PD, error)
	// Close refuses with ErrBusy while anything was made in it.
	Close() error
}

// TD is a thread domain: a promise that one goroutine at a time uses what is made
// under it.
type TD interface {
	// Close refuses with ErrBusy while a parent domain uses it.
	Close() error
}

// TDConfig is what a thread domain is made with.
type TDConfig struct {
	// Sharing is how much of the device's doorbell resources it may share: 0 as the
	// provider likes, 1 none, 2 with one other.
	Sharing int
}

// AsyncEvent is something that happened to a device or one of its objects.
type AsyncEvent struct {
	Type EventType
	// One of these names the object, by type.
	QP   QP
	CQ   CQ
	SRQ  SRQ
	Port uint8
}

// Provider opens devices of one kind.
type Provider interface {
	// Name is "soft" or "ibv".
	Name() string
	// Devices lists what can be opened.
	Devices() ([]DeviceInfo, error)
	// Open opens a device of the list. Each Context is independent of others on
	// the same device.
	Open(d DeviceInfo) (Context, error)
}

// Context is an open device.
type Context interface {
	Info() DeviceInfo
	Attr() *DeviceAttr
	// Port gives a port's attributes; ports count from 1.
	Port(n uint8) (PortAttr, error)
	GID(port uint8, index int) (GID, error)
	PKey(port uint8, index int) (uint16, error)

	AllocPD() (PD, error)
	AllocTD(c TDConfig) (TD, error)
	CreateCQ(c CQConfig) (CQ, error)
	CreateCompChannel() (CompChannel, error)

	// AsyncFD becomes readable when TryAsync has something.
	AsyncFD() int
	// TryAsync takes an event without waiting; Async waits. Each must be given to
	// Ack: closing its object waits for that.
	TryAsync() (AsyncEvent, bool)
	Async(ctx context.Context) (AsyncEvent, error)
	Ack(e AsyncEvent)

	// Stats are the device's counters.
	Stats() *stats.Group
	// Close refuses with ErrBusy while anything was made in it.
	Close() error
}

// Rester is a Context whose work is done by the program's polls as long as there
// are some, and a moment after the last by a goroutine of its own (soft).
type Rester interface {
	// Rest spares that moment: the program is about to sleep, having armed the
	// queues that are to wake it. Safe from any goroutine.
	Rest()
}
