package uct

import (
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats"
)

// UUID identifies a worker among all: 128 random bits.
type UUID [16]byte

// IfaceInfo names an interface that a domain can open.
type IfaceInfo struct {
	Transport string
	ID        TransportID
	Device    string
	Kind      DeviceKind
}

// LockMode says who may share an iface's resources.
type LockMode uint8

// Lock modes.
const (
	// LockNone: this iface's goroutine is alone with its resources.
	LockNone LockMode = iota
	// LockShared: other ifaces or threads use the same resources; the transport
	// locks what is shared.
	LockShared
)

// Resources names, by number, what the iface's endpoints share. Equal numbers
// mean the same resource. A policy makes the plan; the zero value is the one
// default plan.
//
// Source: the resource hierarchy of "Scalable Communication Endpoints for
// MPI+Threads Applications".
type Resources struct {
	Context, Domain, Thread, CQ, QP, Rings int
	// MaxUnexpected bounds received data that waits for its receive, in bytes;
	// 0: the transport's default.
	MaxUnexpected int
}

// IfaceConfig is what an iface is opened with.
type IfaceConfig struct {
	// Handler gets all callbacks; required.
	Handler Handler
	// Worker that owns the iface; required, not zero.
	Worker UUID
	// Settings; nil: those of the domain.
	Settings *config.Set
	// Lock says whether Resources are shared; zero: they are this iface's alone.
	Lock LockMode
	// Resources to use; zero: the default plan.
	Resources Resources
	// Threads is the number of thread indexes that endpoints may be opened for;
	// 0: one.
	Threads int
	// Stats is where the iface enumerates its counters; nil: nowhere.
	Stats *stats.Group
	// Wants are the operations that will be used; others need not get
	// resources. 0: all.
	Wants Ops
	// Unattended is called when an endpoint has connected without Progress and
	// operations wait in its pending queue; nil: they wait for Progress. It runs on
	// the transport's own goroutine, outside of the iface, and must not block. It may
	// call Unattended.ResumePending if it excludes all other users of the iface. It
	// returns the delay until the next call; a negative delay means none before
	// another endpoint connects. A transport that connects only in Progress never
	// calls it.
	Unattended func() time.Duration
}

// Unattended is an Iface that calls IfaceConfig.Unattended.
type Unattended interface {
	// ResumePending passes the pending operations of connected endpoints to the
	// handler, in order, some of an endpoint's at a time. It starts no batch of them
	// after until. Progress passes all that wait on an endpoint at once.
	// Operations may complete, but no message is received and no failure is reported.
	// It returns how many operations moved, and whether others still wait.
	ResumePending(until ucs.Time) (moved int, left bool)

	// PendingLeft reports whether operations wait that ResumePending may resume.
	PendingLeft() bool
}

// Address of an iface in two parts: Device is the same for all ifaces on one
// device of a host, Iface tells them apart. Both are at most 255 bytes.
type Address struct{ Device, Iface []byte }

// Iface is one communication interface of a worker. One goroutine at a time
// uses it and its endpoints.
type Iface interface {
	Attr() *IfaceAttr
	// DeviceAddress and Address append the two parts of the iface's address.
	DeviceAddress(b []byte) []byte
	Address(b []byte) []byte
	// Reachable says whether a may be reached, else why not. True is a guess
	// that connecting proves.
	Reachable(a Address) (bool, string)
	// NewEndpoint makes a send handle to the iface at a, for thread index t < Threads.
	// It does not wait for the peer; what is sent meanwhile arrives in order.
	// An error that wraps ucs.ErrPeerFailed says that the peer is gone for certain,
	// so that no other transport need be asked.
	NewEndpoint(a Address, t int) (Endpoint, error)

	// Progress does bounded work: at most about budget messages and events. It
	// returns their number and that of failures, and more where operations that waited
	// went on, so that 0 means idle. All callbacks come from here.
	Progress(budget int) int
	// Release gives kept memory back by Desc.Handle.
	Release(handles []uint64)

	// Disconnect ends the connection whose messages come with that Desc.Source, as if it
	// had failed here: HandleFailure follows, and the sender's end fails too, as soon as
	// it finds out. Where there is no such connection (any more), and without
	// Attr.PeerFailure, nothing happens. It may be called from callbacks.
	Disconnect(source uint32)

	// EventFD is a descriptor that becomes readable on armed events, or -1. It
	// is the iface's own; do not read or close it.
	EventFD() int
	// Arm asks for a wake-up through EventFD on the next event of kind k. Busy:
	// something is there already; Progress, then Arm again. InProgress: armed,
	// but something that gives no sign is due; Progress within a millisecond or so.
	Arm(k EventKind) Status
	// Activate and Deactivate count the endpoints that the layer above uses;
	// they come in pairs. ActiveEndpoints adds the connections that peers made, and
	// those of closed endpoints that have tokens in flight. While it is 0 nothing but
	// EventFD needs to be looked at.
	Activate()
	Deactivate()
	ActiveEndpoints() int

	// Flush ends when all operations of all endpoints posted before have ended;
	// as Endpoint.Flush with FlushLocal.
	Flush(t Token) Status
	// Fence orders the operations of each endpoint before it against those after.
	Fence() Status
	// Close ends endpoints and connections and gives everything back. Idempotent.
	Close() error
}
