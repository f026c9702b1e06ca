package verbs

import (
	"context"
	"net/netip"
	"time"

	"github.com/goucx/goucx/ucs/stats"
)

// GID is a port's global identifier. For RoCEv2 over IPv4 it is the IPv4-mapped
// address.
type GID [16]byte

// Addr returns the GID as an IP address, IPv4 unmapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// GIDOf returns the GID of an IP address.
func GIDOf(a netip.Addr) GID { return a.As16() }

// DeviceInfo identifies a device that a provider can open.
type DeviceInfo struct {
	// Provider is "soft", or "ibv" for RDMA hardware and the kernel's Soft-RoCE.
	Provider string
	// Name is unique within the provider.
	Name string
	// Net is the network interface of the device, or "".
	Net string
	// Link is the link of a soft device, "inproc" or "udp"; of others "roce".
	Link string
}

// DeviceAttr are a device's limits and capabilities.
type DeviceAttr struct {
	NodeGUID                                                                                uint64
	MaxMRSize                                                                               uint64
	MaxQP, MaxQPWR, MaxSGE, MaxCQ, MaxCQE, MaxMR, MaxPD, MaxAH, MaxSRQ, MaxSRQWR, MaxSRQSGE int
	// MaxQPRdAtomic limits QPAttr.MaxDestRdAtomic. QPAttr.MaxRdAtomic is reduced to
	// MaxQPInitRdAtomic.
	MaxQPRdAtomic, MaxQPInitRdAtomic int
	MaxInline                        int
	// MaxMW is the most memory windows, 0: there are none.
	MaxMW int
	// MaxMcastGroups is the most multicast groups that queue pairs of the device are attached to,
	// MaxMcastAttach the most queue pairs of one group; 0: there is no multicast.
	MaxMcastGroups, MaxMcastAttach int
	// MaxCQModCount and MaxCQModPeriod limit the event moderation of a CQ; 0: there is none.
	MaxCQModCount  int
	MaxCQModPeriod time.Duration
	MaxMessage     uint32
	Atomic         AtomicCap
	Ports          int
	// SRQResize: SRQ.Resize is supported.
	SRQResize bool
	// AckMeansPlaced: an acknowledged write is visible to the peer's CPU.
	AckMeansPlaced bool
	// ThreadDomains are the limits of the device's thread domains.
	ThreadDomains TDLimits
}

// TDLimits are limits of thread domains, and of the pages of doorbell registers (UAR) that they take.
// Without NoTDs, 0 is a limit that is not known.
type TDLimits struct {
	// NoTDs: objects in a thread domain take locks as others do.
	NoTDs bool
	// IndependentTDs is the most thread domains with Sharing 1 in a context, TDPages the most pages
	// of the thread domains of a context.
	IndependentTDs, TDPages int
	// Pages is the number of pages of the device. A context takes ContextPages of them.
	Pages, ContextPages int
}

// PortAttr are a port's attributes.
type PortAttr struct {
	State             PortState
	MaxMTU, ActiveMTU MTU
	// LongMTU is the largest path MTU of an RC queue pair to a port with the same LongMTU,
	// if that is larger than ActiveMTU; else 0.
	LongMTU     MTU
	GIDs, PKeys int
	// LID is the UDP port of a soft device over UDP; 0 means 4791, the port of RoCEv2. A RoCE
	// port of another device has none: 0.
	LID        uint16
	Link       LinkLayer
	MaxMessage uint32
	// PeerFeatures is what peers may set in QPAttr.PeerFeatures and AHAttr.PeerFeatures
	// for this port: PeerGoucx on a soft device, else 0.
	PeerFeatures uint32
	// GIDIndex and PKeyIndex are the table entries that programs use for the port, if they
	// have no reason for another. TrafficClass and SL are for its address vectors. A provider
	// chooses them by its settings.
	GIDIndex         int
	PKeyIndex        uint16
	TrafficClass, SL uint8
}

// PathMTU returns the largest path MTU of an RC queue pair. For two ports it is
// the smaller of both results.
func (a *PortAttr) PathMTU() MTU { return max(a.ActiveMTU, a.LongMTU) }

// AHAttr is the address of a peer's port.
type AHAttr struct {
	// DGID is the peer's GID. DLID is the UDP port of a soft device (0 means 4791).
	DGID GID
	DLID uint16
	// SGIDIndex is the index of the local GID.
	SGIDIndex int
	// Port is the number of the local port.
	Port         uint8
	HopLimit     uint8
	TrafficClass uint8
	// SL is the service level, 0 to 15; soft devices ignore it.
	SL uint8
	// FlowLabel is the flow label of the packets over IPv6, 20 bits.
	FlowLabel uint32
	// PeerFeatures applies to datagrams: the receiver's PortAttr.PeerFeatures, or 0. A
	// connected queue pair uses QPAttr.PeerFeatures.
	PeerFeatures uint32
}

// AHID identifies an address handle in work requests.
type AHID uint32

// AH is an address handle.
type AH interface {
	ID() AHID
	// Close destroys the handle. Work requests posted before are still executed.
	Close() error
}

// MR is a memory region. It references and pins the memory until Close.
type MR interface {
	// LKey is the key in local SGEs, RKey the key in work requests of peers.
	LKey() uint32
	RKey() uint32
	// Bytes returns the memory, until Close.
	Bytes() []byte
	// Addr returns the address of the first byte in SGEs and in requests of peers.
	Addr() uint64
	// Close invalidates the keys at once. It returns when the device no longer accesses
	// the memory.
	Close() error
}

// MRConfig configures a memory region.
type MRConfig struct {
	// Access is the set of permitted operations.
	Access Access
	// IOVA is the address of the first byte, if HasIOVA is set. Otherwise it is the
	// memory's own address, or 0 with ZeroBased access.
	IOVA uint64
	// HasIOVA: IOVA is valid.
	HasIOVA bool
	// Revocable permits OpLocalInv, and OpSendInv of a peer, to invalidate the key. On
	// other regions they fail: a program may rely on its registration.
	//
	// Source: IBTA vol. 1, 10.6: only regions for fast registration can be invalidated;
	// rxe and hardware refuse it for others.
	Revocable bool
}

// PD is a protection domain. Keys, queue pairs and address handles of different domains
// cannot be combined.
type PD interface {
	// Register registers and pins buf, which belongs to the domain until MR.Close.
	Register(buf []byte, c MRConfig) (MR, error)
	CreateQP(c QPConfig) (QP, error)
	CreateSRQ(a SRQAttr) (SRQ, error)
	CreateAH(a AHAttr) (AH, error)
	// CreateAHFromWC creates an address handle for the sender of a datagram, from its
	// completion and the first 40 bytes of its buffer.
	CreateAHFromWC(port uint8, wc *WC, grh []byte) (AH, error)
	// Parent allocates a parent domain. It has the same protection, and the objects
	// created in it are under td. CQConfig.Domain puts a completion queue under it too.
	Parent(td TD) (PD, error)
	// Close returns ErrBusy while objects of the domain are open.
	Close() error
}

// TD is a thread domain: the program guarantees that at most one goroutine at a time
// uses the objects under it.
type TD interface {
	// Close returns ErrBusy while a parent domain uses it.
	Close() error
}

// TDConfig configures a thread domain.
type TDConfig struct {
	// Sharing is the permitted sharing of doorbell resources: 0 as the provider
	// chooses, 1 none, 2 with one other.
	Sharing int
}

// AsyncEvent is an asynchronous event of a device or of one of its objects.
type AsyncEvent struct {
	Type EventType
	// One of these identifies the object, depending on Type.
	QP   QP
	CQ   CQ
	SRQ  SRQ
	Port uint8
}

// Provider opens devices of one kind.
type Provider interface {
	// Name returns what DeviceInfo.Provider is.
	Name() string
	// Devices lists the devices that can be opened.
	Devices() ([]DeviceInfo, error)
	// Open opens a device of the list. Several Contexts of one device are independent.
	Open(d DeviceInfo) (Context, error)
}

// Context is an open device.
type Context interface {
	Info() DeviceInfo
	Attr() *DeviceAttr
	// Port returns a port's attributes; ports count from 1.
	Port(n uint8) (PortAttr, error)
	GID(port uint8, index int) (GID, error)
	PKey(port uint8, index int) (uint16, error)

	AllocPD() (PD, error)
	AllocTD(c TDConfig) (TD, error)
	CreateCQ(c CQConfig) (CQ, error)
	CreateCompChannel() (CompChannel, error)

	// AsyncFD returns a file descriptor that is readable while TryAsync has an event.
	AsyncFD() int
	// TryAsync removes an event without blocking; Async blocks. Each event must be
	// passed to Ack: closing its object waits for that.
	TryAsync() (AsyncEvent, bool)
	Async(ctx context.Context) (AsyncEvent, error)
	Ack(e AsyncEvent)

	// Stats returns the device's counters.
	Stats() *stats.Group
	// Close returns ErrBusy while objects of the device are open.
	Close() error
}

// IdleNotifier is a Context that makes progress in the program's polls, and in a goroutine of
// its own some time after the last poll (soft).
type IdleNotifier interface {
	// NotifyIdle lets that goroutine start at once. The program calls it before it sleeps,
	// after it has armed the queues that are to wake it. Any goroutine may call it.
	NotifyIdle()
}
