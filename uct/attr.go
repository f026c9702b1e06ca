package uct

import "time"

// Ops is a set of operations and features of an iface.
type Ops uint32

// The operations, one bit each. Short and bcopy operations copy the payload before they return;
// zcopy operations reference it until their Event.
const (
	// OpAMShort: Endpoint.AMShort and AMUint64.
	OpAMShort Ops = 1 << iota
	// OpAMBcopy: Endpoint.ReserveAM, CommitAM and Abort.
	OpAMBcopy
	// OpAMZcopy: Endpoint.AMZcopy.
	OpAMZcopy
	// OpPutShort: Endpoint.PutShort and PutUint64.
	OpPutShort
	// OpPutBcopy: Endpoint.PutBcopy.
	OpPutBcopy
	// OpPutZcopy: Endpoint.PutZcopy.
	OpPutZcopy
	// OpGetShort: Endpoint.GetShort and GetUint64.
	OpGetShort
	// OpGetBcopy: Endpoint.GetBcopy.
	OpGetBcopy
	// OpGetZcopy: Endpoint.GetZcopy.
	OpGetZcopy
	// OpAtomics: those of IfaceAttr.Post32, Post64, Fetch32 and Fetch64, which are not all empty.
	OpAtomics
	// OpFlushLocal: Endpoint.Flush with FlushLocal, and Iface.Flush.
	OpFlushLocal
	// OpFlushRemote: Endpoint.Flush with FlushRemote.
	OpFlushRemote
	// OpFlushCancel: Endpoint.Flush with FlushCancel.
	OpFlushCancel
	// OpFence: Endpoint.Fence and Iface.Fence.
	OpFence
	// OpPending: Endpoint.PendingAdd and PendingPurge.
	OpPending
	// OpCheck: Endpoint.Check.
	OpCheck
)

// Groups of operations.
const (
	// OpsAM are all forms of active messages.
	OpsAM = OpAMShort | OpAMBcopy | OpAMZcopy
	// OpsPut are all forms of put.
	OpsPut = OpPutShort | OpPutBcopy | OpPutZcopy
	// OpsGet are all forms of get.
	OpsGet = OpGetShort | OpGetBcopy | OpGetZcopy
)

// Has reports whether the set contains all of want.
func (o Ops) Has(want Ops) bool { return o&want == want }

// Limit holds the limits of one kind of operation in bytes, 0 if unsupported. math.MaxInt means no
// limit.
type Limit struct {
	// Short and Bcopy are the maximum message lengths of each form.
	Short, Bcopy int
	// MinZcopy and MaxZcopy bound the total length of the pieces, MaxVec their number.
	MinZcopy, MaxZcopy, MaxVec int
	// MaxHeader is the maximum header length of AMZcopy; 0 for put and get.
	MaxHeader int
}

// ConnectKind is how endpoints of an iface are connected.
type ConnectKind uint8

// Connect kinds.
const (
	// ConnectToIface: an endpoint needs only the address of the peer's iface.
	ConnectToIface ConnectKind = iota
	// ConnectToEndpoint: both sides create an endpoint and exchange the endpoint addresses (a
	// queue pair).
	ConnectToEndpoint
)

// EventKind is a set of events that wake a waiting worker.
type EventKind uint8

// Events.
const (
	// EventRecv: an active message or a connection arrived.
	EventRecv EventKind = 1 << iota
	// EventSend: an operation completed, or send resources are available again.
	EventSend
)

// Estimate holds the performance estimates for lane selection: time(n bytes) = LatencyNS +
// LatencyPerEpNS·endpoints + OverheadNS + n/bandwidth.
//
// Source: the linear model of UCX's uct_iface_attr.
type Estimate struct {
	// Dedicated and Shared are bandwidths in bytes per second: for each endpoint, and divided
	// among the processes of the host.
	Dedicated, Shared float64
	// LatencyNS is the time in ns of an empty message between two hosts or processes.
	LatencyNS float64
	// LatencyPerEpNS is the additional latency in ns per endpoint of the iface.
	LatencyPerEpNS float64
	// OverheadNS is the CPU time in ns per message on either side.
	OverheadNS float64
}

// IfaceAttr describes the capabilities of an iface. Tests and lane selection use it, never the
// transport's name.
type IfaceAttr struct {
	// Ops are the supported operations.
	Ops Ops
	// AM, Put and Get are the limits of these operations.
	AM, Put, Get Limit
	// Post and Fetch are the atomics without and with a fetched result, by width.
	Post32, Post64, Fetch32, Fetch64 AtomicSet
	// DeviceAtomics: atomics are coherent only with each other, not with those of the CPU.
	DeviceAtomics bool
	Connect       ConnectKind
	// Events are those that EventFD reports; 0: the iface has no descriptor.
	Events EventKind
	// MaxConnections is the number of connections that have memory or a queue pair at once; of more,
	// idle ones sleep (see ConnectionCache). 0: no limit.
	MaxConnections int
	// AckMeansPlaced: an acknowledged write is visible to the remote CPU.
	AckMeansPlaced bool
	// PeerFailure: HandleFailure reports the death of a peer, at once or FailureWithin that time.
	PeerFailure   bool
	FailureWithin time.Duration
	// AccessErrorFatal: an access that the peer refuses, because the region was revoked or closed
	// meanwhile, completes with RemoteAccess and fails its endpoint. For operations posted without
	// a token only the Failure reports it.
	AccessErrorFatal bool
	// Estimate is what lane selection compares.
	Estimate Estimate
	// Fetch are the messages that take less time if the peer fetches them (Exposer).
	Fetch FetchAttr
}

// FetchAttr says which messages a peer fetches, and how: from memory of the program, and from memory of Domain.Allocate.
type FetchAttr struct{ Heap, Allocated Fetch }

// Fetch says from which length on a message takes less time if the peer fetches it. The texts are for people.
type Fetch struct {
	// From is the length in bytes; 0: no message is sent so for that reason.
	From int
	// Setting has the setting that decides about From, its value and its origin.
	Setting string
	// Way is how the data of a message that is announced gets to its receiver, and Reason why so.
	Way, Reason string
}

// DomainAttr describes the capabilities of a memory domain.
type DomainAttr struct {
	// Register: the domain can register the program's memory.
	Register bool
	// NeedMem: the pieces of a zcopy must contain their registration (Vec.Mem).
	NeedMem bool
	// Allocate: the domain can allocate memory.
	Allocate bool
	// MaxRegister and MaxAllocate bound the size in bytes.
	MaxRegister, MaxAllocate int
	// KeyLen is the maximum length of a packed key in bytes.
	KeyLen int
	// LazyKeyCheck: UnpackKey does not check with the owner that the region still exists; the first
	// access does.
	LazyKeyCheck bool
	// ThreadDomains are the limits of the thread domains that Resources may ask for.
	ThreadDomains ThreadDomainLimits
}

// ThreadDomainLimits are the limits of a device that a policy of package ucp/sharing plans for. 0 is
// none, or one that is not known. Domains without thread domains, as those of shared memory, have none.
type ThreadDomainLimits struct {
	// NoTDs: the device has no thread domains; an iface in one takes locks.
	NoTDs bool
	// IndependentTDs is the most of level ExclusiveDomain, TDPages the most pages of doorbell
	// registers that the thread domains of a Domain take.
	IndependentTDs, TDPages int
	// Pages is the number of pages of the device. A Domain takes ContextPages of them.
	Pages, ContextPages int
}
