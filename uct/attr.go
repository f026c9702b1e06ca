package uct

import "time"

// Ops is a set of operations and features of an iface.
type Ops uint32

// The operations, one bit each. Atomics have sets of their own in IfaceAttr.
const (
	OpAMShort Ops = 1 << iota
	OpAMBcopy
	OpAMZcopy
	OpPutShort
	OpPutBcopy
	OpPutZcopy
	OpGetShort
	OpGetBcopy
	OpGetZcopy
	OpAtomics
	OpFlushLocal
	OpFlushRemote
	OpFlushCancel
	OpFence
	OpPending
	OpCheck
)

// Groups of operations.
const (
	OpsAM  = OpAMShort | OpAMBcopy | OpAMZcopy
	OpsPut = OpPutShort | OpPutBcopy | OpPutZcopy
	OpsGet = OpGetShort | OpGetBcopy | OpGetZcopy
)

// Has reports whether all of want are in the set.
func (o Ops) Has(want Ops) bool { return o&want == want }

// Limit bounds one kind of operation, in bytes; 0 where unsupported. An
// unlimited form says math.MaxInt.
type Limit struct {
	// Short and Bcopy are the longest message of each form.
	Short, Bcopy int
	// MinZcopy and MaxZcopy bound the sum of the pieces, MaxVec their number.
	MinZcopy, MaxZcopy, MaxVec int
	// MaxHead is the longest head of AMZcopy; 0 for put and get.
	MaxHead int
}

// ConnectKind says how endpoints of an iface are made.
type ConnectKind uint8

// Connect kinds.
const (
	// ConnectToIface: an endpoint needs the peer iface's address only.
	ConnectToIface ConnectKind = iota
	// ConnectToEndpoint: both sides make an endpoint and exchange their
	// endpoint addresses (a queue pair).
	ConnectToEndpoint
)

// EventKind is a set of events that wake a sleeper.
type EventKind uint8

// Events.
const (
	// EventRecv: an active message arrived, or a connection.
	EventRecv EventKind = 1 << iota
	// EventSend: an operation ended or send resources came back.
	EventSend
)

// Estimate holds the figures from which the layer above chooses lanes:
// time(n bytes) = LatencyNS + LatencyPerEpNS·endpoints + OverheadNS + n/bandwidth.
//
// Source: the linear model of UCX's uct_iface_attr.
type Estimate struct {
	// Dedicated and Shared are bandwidths in bytes per second: of each endpoint,
	// and divided among the processes of the host.
	Dedicated, Shared float64
	LatencyNS         float64
	LatencyPerEpNS    float64
	// OverheadNS is CPU time per message on either side.
	OverheadNS float64
}

// IfaceAttr tells what an iface can do. Tests and lane choice look at it, never
// at a transport's name.
type IfaceAttr struct {
	Ops          Ops
	AM, Put, Get Limit
	// Atomics without and with a fetched result, by width.
	Post32, Post64, Fetch32, Fetch64 AtomicSet
	// DeviceAtomics: atomics are coherent among themselves only, not with the
	// CPU's.
	DeviceAtomics bool
	Connect       ConnectKind
	Events        EventKind
	// AckMeansPlaced: an acknowledged write is visible to the remote CPU.
	AckMeansPlaced bool
	// PeerFailure: the death of a peer is reported by HandleFailure, at once or
	// FailureWithin that time.
	PeerFailure   bool
	FailureWithin time.Duration
	// AccessFails: an access that the peer refuses, since the region was revoked or
	// closed meanwhile, ends with RemoteAccess and fails its endpoint. What was
	// posted without a token is told by the Failure alone.
	AccessFails bool
	Est         Estimate
}

// DomainAttr tells what a memory domain can do.
type DomainAttr struct {
	// Register: memory of the program can be registered.
	Register bool
	// NeedMem: the pieces of a zcopy must carry their registration (Vec.Mem).
	NeedMem bool
	// Allocate: the domain allocates memory of its own.
	Allocate bool
	// MaxRegister and MaxAllocate bound the size in bytes.
	MaxRegister, MaxAllocate int
	// KeyLen is the longest packed key in bytes.
	KeyLen int
	// KeysUnasked: UnpackKey does not ask the owner whether the region still stands;
	// the first access tells.
	KeysUnasked bool
}
