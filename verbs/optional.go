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
	MWType1 MWType = 1 // bound by a call
	MWType2 MWType = 2 // bound by OpBindMW
)

// MW is a memory window: a separate key for a part of an MR.
type MW interface {
	RKey() uint32
	Close() error
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
	// after the first one.
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

func unsupported(what string) error { return fmt.Errorf("%s: %w", what, ucs.ErrUnsupported) }
