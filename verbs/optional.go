package verbs

import (
	"fmt"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Optional interfaces: an object supports a capability if it satisfies the interface.
// The function next to each interface calls it, or returns ucs.ErrUnsupported.

// Reusable is an MR whose access, range or domain can be changed.
type Reusable interface {
	// Reregister changes the registration to pd, buf and c. The key that peers have may
	// become invalid. A closed MR is open again afterwards, which avoids allocating
	// another; no other goroutine may use it then.
	Reregister(pd PD, buf []byte, c MRConfig) error
}

// Reregister changes the registration of m.
func Reregister(m MR, pd PD, buf []byte, c MRConfig) error {
	if r, ok := m.(Reusable); ok {
		return r.Reregister(pd, buf, c)
	}
	return unsupported("reregister memory")
}

// MWType is the kind of a memory window.
type MWType uint8

// Kinds of memory windows.
const (
	// MWType1: any queue pair of the domain may bind it, and each bind changes its key.
	// A bind of no bytes makes the key invalid.
	MWType1 MWType = 1
	// MWType2: it belongs to the queue pair that binds it, and only its peer may use it.
	// OpLocalInv, and OpSendInv of the peer, make the key invalid; it can be bound again then.
	MWType2 MWType = 2
)

// MW is a memory window: a separate key for a part of an MR.
//
// Source: IBTA vol. 1, 10.6.7.
type MW interface {
	// RKey returns the key. With the key of an unbound window a peer has no access.
	RKey() uint32
	// Close makes the key invalid and frees the window.
	Close() error
}

// MWBind is the memory that peers access with the key of a window.
type MWBind struct {
	// MR is the region, registered with BindMW access in the domain of the window.
	MR MR
	// Addr and Len are the part of it, in bytes, by the addresses of the region.
	Addr, Len uint64
	// Access is a set of RemoteWrite, RemoteRead and RemoteAtomic. RemoteWrite and
	// RemoteAtomic require that the region has LocalWrite.
	Access Access
}

// MWBinder is a connected queue pair that binds memory windows.
type MWBinder interface {
	// BindWindow posts a request that binds w to b, after all requests before it. Its completion has
	// the id, and opcode WCBindMW. Peers use the key that RKey returns after the call; the
	// one before is invalid from the completion on.
	BindWindow(id uint64, flags SendFlags, w MW, b MWBind) error
}

// BindWindow posts a request to q that binds w to b.
func BindWindow(q QP, id uint64, flags SendFlags, w MW, b MWBind) error {
	if m, ok := q.(MWBinder); ok {
		return m.BindWindow(id, flags, w, b)
	}
	return unsupported("bind memory window")
}

// MWAllocator is a PD that supports memory windows.
type MWAllocator interface {
	AllocMW(t MWType) (MW, error)
}

// AllocMW allocates a memory window in pd.
func AllocMW(pd PD, t MWType) (MW, error) {
	if a, ok := pd.(MWAllocator); ok {
		return a.AllocMW(t)
	}
	return nil, unsupported("allocate memory window")
}

// Multicaster is a UD queue pair that can join multicast groups.
type Multicaster interface {
	AttachMulticast(group GID) error
	DetachMulticast(group GID) error
}

// AttachMulticast makes q receive the datagrams sent to group.
func AttachMulticast(q QP, group GID) error {
	if m, ok := q.(Multicaster); ok {
		return m.AttachMulticast(group)
	}
	return unsupported("attach to multicast group")
}

// DetachMulticast undoes AttachMulticast.
func DetachMulticast(q QP, group GID) error {
	if m, ok := q.(Multicaster); ok {
		return m.DetachMulticast(group)
	}
	return unsupported("detach from multicast group")
}

// Moderator is a CQ that can delay and combine events.
type Moderator interface {
	// Moderate makes an armed queue raise its event after count completions, or period
	// after the first one; 0: not by this. DeviceAttr.MaxCQModCount and MaxCQModPeriod are
	// the limits. count 1 or 0 without a period raises each event at once again.
	Moderate(count int, period time.Duration) error
}

// Moderate sets the event moderation of a CQ.
func Moderate(c CQ, count int, period time.Duration) error {
	if m, ok := c.(Moderator); ok {
		return m.Moderate(count, period)
	}
	return unsupported("moderate completion queue")
}

// PeerState is the state of a peer's queue pair, as a PeerProber finds it.
type PeerState uint8

const (
	// PeerUnknown: nothing shows that the queue pair is gone.
	PeerUnknown PeerState = iota
	// PeerPortClosed: nothing receives at the peer's port.
	PeerPortClosed
	// PeerQPClosed: the device at the peer's port has no such queue pair.
	PeerQPClosed
)

var peerStateNames = [...]string{"nothing is known of it", "its process has ended: its port is closed", "its queue pair is closed"}

// String returns the state as the end of a sentence that begins with "the peer failed: ".
func (s PeerState) String() string { return peerStateNames[s] }

// PeerProber is a Context that detects that a peer's device or queue pair is gone, although the
// peer sends nothing (soft, over UDP).
type PeerProber interface {
	// PeerState returns what is known of the queue pair qpn at address a, and probes it in the
	// background. The caller repeats the call while it waits for the peer. lastReceived is the time of
	// the last packet that it has received from the peer. A result other than PeerUnknown is
	// final, unless the caller has received a packet since. Any goroutine may call it.
	PeerState(a *AHAttr, qpn QPN, lastReceived ucs.Time) PeerState
}

// PostPoller is a QP that posts and polls in one call (ibv: with one crossing into C).
type PostPoller interface {
	// PostSendPoll posts wrs as PostSend does, and then polls c as CQ.Poll does, also if not
	// all were posted.
	//
	//hot:bench BenchmarkCrossing
	PostSendPoll(wrs []SendWR, c CQ, wcs []WC) (posted int, st ucs.Status, polled int)
}

// PostSendPoll posts wrs to q and then polls c, in one call if q is a PostPoller.
func PostSendPoll(q QP, wrs []SendWR, c CQ, wcs []WC) (posted int, st ucs.Status, polled int) {
	if p, ok := q.(PostPoller); ok {
		return p.PostSendPoll(wrs, c, wcs)
	}
	posted, st = q.PostSend(wrs)
	return posted, st, c.Poll(wcs)
}

func unsupported(what string) error { return fmt.Errorf("%s: %w", what, ucs.ErrUnsupported) }
