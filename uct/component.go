package uct

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
)

// TransportID names a transport in a worker address. The numbers are part of
// the wire format and never reused; unknown ones are skipped.
type TransportID uint16

// Transports of goucx.
const (
	TransportSelf TransportID = 1
	TransportShm  TransportID = 2
	TransportRC   TransportID = 3
	TransportUD   TransportID = 4
)

// DeviceKind groups devices for the UCX_*_DEVICES filters.
type DeviceKind uint8

// Device kinds.
const (
	DeviceSelf DeviceKind = iota
	DeviceShm
	DeviceNet
)

var deviceKinds = [...]string{"self", "shm", "net"}

// String gives the kind as UCX's variables spell it.
func (k DeviceKind) String() string {
	if int(k) < len(deviceKinds) {
		return deviceKinds[k]
	}
	return fmt.Sprintf("device kind %d", uint8(k))
}

// Refusal says why a transport is not used.
type Refusal struct{ Transport, Device, Reason string }

// String gives "transport/device: reason".
func (r Refusal) String() string {
	switch {
	case r.Device == "":
		return r.Transport + ": " + r.Reason
	case r.Transport == "":
		return r.Device + ": " + r.Reason
	default:
		return r.Transport + "/" + r.Device + ": " + r.Reason
	}
}

// DomainInfo names a memory domain that a component can open.
type DomainInfo struct {
	Component string
	// Name of the domain, unique within its component.
	Name string
}

// DomainConfig is what a domain is opened with. The zero value works.
type DomainConfig struct {
	// Settings; nil: defaults.
	Settings *config.Set
	// Log for the control path; nil: silent.
	Log *zap.Logger
}

// Component is one transport provider.
type Component interface {
	// Name is the provider's name as UCX_TLS knows it.
	Name() string
	// Aliases are further names that select it (UCX's "sm", "posix", ...).
	Aliases() []string
	// Settings are the component's tables. One that several components share, each
	// of them gives.
	Settings() []config.Table
	// Domains lists what can be opened here and, with its reason, what cannot.
	Domains(s *config.Set) ([]DomainInfo, []Refusal)
	// OpenDomain opens one of them. The caller closes it after its ifaces and
	// memory.
	OpenDomain(d DomainInfo, c DomainConfig) (Domain, error)
}
