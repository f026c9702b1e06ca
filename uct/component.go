package uct

import (
	"fmt"
	"strconv"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
)

// TransportID identifies a transport in a worker address. The numbers are part of the wire format
// and never reused. Parsers skip unknown ones.
type TransportID uint16

// Transports of goucx.
const (
	// TransportSelf is loopback within a worker.
	TransportSelf TransportID = 1
	// TransportShm is shared memory between processes of a host.
	TransportShm TransportID = 2
	// TransportRC is reliable connected queue pairs.
	TransportRC TransportID = 3
	// TransportUD is unreliable datagrams, with a reliability of its own.
	TransportUD TransportID = 4
)

// String returns the transport's name, or "transport 9" for one that this version does not know.
func (t TransportID) String() string {
	switch t {
	case TransportSelf:
		return "self"
	case TransportShm:
		return "shm"
	case TransportRC:
		return "rc"
	case TransportUD:
		return "ud"
	default:
		return "transport " + strconv.Itoa(int(t))
	}
}

// DeviceKind groups devices for the UCX_*_DEVICES filters.
type DeviceKind uint8

// Device kinds.
const (
	// DeviceSelf is the worker itself.
	DeviceSelf DeviceKind = iota
	// DeviceShm is the host's memory.
	DeviceShm
	// DeviceNet is a network interface or adapter.
	DeviceNet
)

var deviceKinds = [...]string{"self", "shm", "net"}

// String returns the kind as UCX's variables spell it.
func (k DeviceKind) String() string {
	if int(k) < len(deviceKinds) {
		return deviceKinds[k]
	}
	return fmt.Sprintf("device kind %d", uint8(k))
}

// Refusal is the reason why a transport is not used.
type Refusal struct{ Transport, Device, Reason string }

// String returns "transport/device: reason".
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

// DomainInfo identifies a memory domain that a component can open.
type DomainInfo struct {
	Component string
	// Name is unique within the component.
	Name string
}

// DomainConfig holds the parameters of OpenDomain. The zero value is valid.
type DomainConfig struct {
	// Settings; nil: defaults.
	Settings *config.Set
	// Log is for the control path; nil: no log.
	Log *zap.Logger
}

// Component is one transport provider.
type Component interface {
	// Name returns the provider's name in UCX_TLS.
	Name() string
	// Aliases returns further names that select it (UCX's "sm", "posix", ...).
	Aliases() []string
	// Settings returns the component's tables. A table that several components share is returned
	// by each of them.
	Settings() []config.Table
	// Domains returns the domains that this host can open and, with the reason, those that it
	// cannot.
	Domains(s *config.Set) ([]DomainInfo, []Refusal)
	// OpenDomain opens one of them. The caller closes the domain after its ifaces and memory.
	OpenDomain(d DomainInfo, c DomainConfig) (Domain, error)
}
