package verbs

import (
	"fmt"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Abilities that not every provider has stand in interfaces of their own: an
// object has one where it satisfies the interface. The function beside each asks,
// and answers ucs.ErrUnsupported where it does not.

// Reregisterer is an MR whose access, range or domain can change.
type Reregisterer interface {
	// Reregister changes what c says; a key that peers hold may become invalid. A
	// closed MR is open again afterwards, which spares making another: nobody may
	// hold it but the caller.
	Reregister(pd PD, buf []byte, c MRConfig) error
}

// Reregister changes the registration of m.
func Reregister(m MR, pd PD, buf []byte, c MRConfig) error {
	if r, ok := m.(Reregisterer); ok {
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

// MW is a memory window: a key of its own to a part of an MR.
type MW interface {
	RKey() uint32
	Close() error
}

// MWAllocator is a PD with memory windows.
type MWAllocator interface {
	AllocMW(t MWType) (MW, error)
}

// AllocMW makes a memory window in pd.
func AllocMW(pd PD, t MWType) (MW, error) {
	if a, ok := pd.(MWAllocator); ok {
		return a.AllocMW(t)
	}
	return nil, unsupported("allocate memory window")
}

// Multicaster is a UD queue pair that can hear multicast groups.
type Multicaster interface {
	AttachMulticast(group GID) error
	DetachMulticast(group GID) error
}

// AttachMulticast has q receive what is sent to group.
func AttachMulticast(q QP, group GID) error {
	if m, ok := q.(Multicaster); ok {
		return m.AttachMulticast(group)
	}
	return unsupported("attach to multicast group")
}

// DetachMulticast is the opposite of AttachMulticast.
func DetachMulticast(q QP, group GID) error {
	if m, ok := q.(Multicaster); ok {
		return m.DetachMulticast(group)
	}
	return unsupported("detach from multicast group")
}

// Moderator is a CQ that can hold events back.
type Moderator interface {
	// Moderate has an armed queue fire after count completions, or period after the
	// first.
	Moderate(count int, period time.Duration) error
}

// Moderate sets how a CQ holds events back.
func Moderate(c CQ, count int, period time.Duration) error {
	if m, ok := c.(Moderator); ok {
		return m.Moderate(count, period)
	}
	return unsupported("moderate completion queue")
}

func unsupported(what string) error { return fmt.Errorf("%s: %w", what, ucs.ErrUnsupported) }
