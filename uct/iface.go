package uct

import (
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats"
)

// UUID identifies a worker globally: 128 random bits.
type UUID [16]byte

// IfaceInfo identifies an interface that a domain can open.
type IfaceInfo struct {
	// Transport is the transport's name, as UCX_TLS spells it: "shm".
	Transport string
	// ID is the transport's number in worker addresses.
	ID TransportID
	// Device is the device's name, as the UCX_*_DEVICES variables spell it.
	Device string
	Kind   DeviceKind
}

// ThreadDomain is the thread domain of an iface's queue pairs. A transport without queue pairs
// ignores it.
//
// Source: the levels of sharing of "Scalable Communication Endpoints for MPI+Threads Applications".
type ThreadDomain uint8

// Thread domains.
const (
	// OwnDomain: one of the iface's own. The device chooses what of it is shared with others.
	OwnDomain ThreadDomain = iota
	// ExclusiveDomain: its own, which shares no doorbell page with another.
	ExclusiveDomain
	// PairedDomain: its own, which may share its doorbell page with one other.
	PairedDomain
	// NoDomain: none. The queue pairs use what the device context has for all, with locks.
	NoDomain
)

// Resources are what an iface gets of its device. A policy of package ucp/sharing plans them; the zero
// value is the default.
type Resources struct {
	// Domain is the thread domain of the queue pairs.
	Domain ThreadDomain
	// Spares is the number of further thread domains that the iface takes and does not use.
	Spares int
	// MaxUnexpected bounds the unexpected data, received before its receive is posted, in bytes.
	// 0: the transport's default.
	MaxUnexpected int
}

// IfaceConfig holds the parameters of OpenIface. The domain does not retain it.
type IfaceConfig struct {
	// Handler receives all callbacks; required.
	Handler Handler
	// Worker is the UUID of the owning worker; required, not zero.
	Worker UUID
	// Settings; nil: those of the domain.
	Settings *config.Set
	// Resources to use; zero: the default.
	Resources Resources
	// Stats is the group for the iface's counters; nil: none.
	Stats *stats.Group
	// Wants are the operations that will be used; the iface may allocate no resources for others.
	// 0: all.
	Wants Ops
	// Unattended is called when an endpoint has connected without Progress and operations wait in
	// its pending queue; nil: they wait for Progress. It runs on the transport's own goroutine,
	// outside of the iface, and must not block. It may call Unattended.ResumePending if it
	// excludes all other users of the iface. It returns the delay until the next call. A negative
	// delay means none before another endpoint connects. A transport that connects only in
	// Progress never calls it.
	Unattended func() time.Duration
}

// Unattended is an Iface that calls IfaceConfig.Unattended.
type Unattended interface {
	// ResumePending passes the pending operations of connected endpoints to the handler, in order,
	// a part of an endpoint's operations at a time. It starts no batch after until. (Progress
	// passes all pending operations of an endpoint at once.) Operations may complete, but no
	// message is received and no failure is reported. It returns how many operations moved, and
	// whether others still wait.
	ResumePending(until ucs.Time) (moved int, left bool)

	// PendingLeft reports whether operations wait that ResumePending may resume.
	PendingLeft() bool
}

// Address is the address of an iface in two parts. The callee does not retain them. Device is equal for all ifaces on one device of
// a host; Iface distinguishes them. Each part has at most 255 bytes.
type Address struct{ Device, Iface []byte }

// Iface is a communication interface of a worker. An Iface and its endpoints are used by one
// goroutine at a time; but Attr, DeviceAddress, Address and Reachable may be called by any.
type Iface interface {
	// Attr returns the iface's capabilities. They do not change; the caller must not write to them.
	Attr() *IfaceAttr
	// DeviceAddress and Address append the two parts of the iface's address to b, at most 255 bytes
	// each, and return the result. The address does not change.
	DeviceAddress(b []byte) []byte
	Address(b []byte) []byte
	// Reachable reports whether a may be reachable, or else the reason. Only connecting proves
	// that it is.
	Reachable(a Address) (bool, string)
	// NewEndpoint creates a send handle to the iface at a. It does not wait for the peer;
	// operations posted before the connection is established arrive in
	// order. An error that wraps ucs.ErrPeerFailed means that the peer is certainly gone, so that
	// the caller tries no other transport.
	NewEndpoint(a Address) (Endpoint, error)

	// Progress does bounded work: at most about budget messages and events. It returns the number
	// of messages, events and failures, plus resumed pending operations and copies for a Fetch, so that
	// 0 means idle. It makes all callbacks.
	Progress(budget int) int
	// Release releases retained memory by Desc.Handle, each once. The caller may reuse handles when
	// it returns, and must not access the memory any more.
	Release(handles []uint64)

	// Disconnect ends the connection with that Desc.RxConn, as if it had failed locally:
	// HandleFailure follows, and the sender's side fails too, as soon as it detects that. Without
	// such a connection, and without Attr.PeerFailure, it does nothing. It may be called from
	// callbacks.
	Disconnect(rxConn uint32)

	// EventFD returns a descriptor that becomes readable on armed events, or -1. The iface owns
	// it; the caller must not read or close it.
	EventFD() int
	// Arm requests a wake-up through EventFD on the next event of kind k. Busy: an event is
	// pending; call Progress, then Arm again. InProgress: armed, but work that raises no event is
	// due; call Progress within about a millisecond.
	Arm(k EventKind) Status
	// Activate and Deactivate count the endpoints that the layer above uses; calls come in pairs.
	// ActiveEndpoints adds the connections that peers initiated, and those of closed endpoints
	// that have tokens in flight. While it is 0, the caller needs to poll only EventFD.
	Activate()
	Deactivate()
	ActiveEndpoints() int

	// Flush completes when all operations posted before on all endpoints have completed, as
	// Endpoint.Flush with FlushLocal.
	Flush(t Token) Status
	// Fence orders the operations of each endpoint before it against those after it. It does not
	// wait.
	Fence() Status
	// Close closes endpoints and connections and releases all resources. It may wait, with a time
	// limit, until peers have acknowledged what was accepted. No callback follows. It is
	// idempotent.
	//
	// Errors: ucs.ErrBusy from a callback of this iface, and nothing is closed; otherwise those of
	// the system, and everything is closed.
	Close() error
}
