package shm

import (
	"fmt"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

const (
	transportName = "shm"
	deviceName    = "memory" // UCX's device name
)

type component struct{}

// Component returns the provider of the shm transport.
func Component() uct.Component { return component{} }

// Name: see uct.Component.
func (component) Name() string { return transportName }

// Aliases: see uct.Component. They are UCX's names for shared memory.
func (component) Aliases() []string { return []string{"sm", "mm", "posix"} }

// Settings: see uct.Component.
func (component) Settings() []config.Table { return []config.Table{settings} }

// Domains: see uct.Component. It probes the system features that the transport needs.
func (component) Domains(*config.Set) ([]uct.DomainInfo, []uct.Refusal) {
	if err := probe(); err != nil {
		return nil, []uct.Refusal{{Transport: transportName, Device: deviceName, Reason: err.Error()}}
	}
	return []uct.DomainInfo{{Component: transportName, Name: transportName}}, nil
}

// probe creates a shared memory segment and passes a descriptor over a socket, as
// connections do.
func probe() error {
	s, err := shmem.Create("goucx-probe", 1)
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if err := platform.TryFDPassing(); err != nil {
		return fmt.Errorf("no descriptors can be passed between processes: %w", err)
	}
	return nil
}

// OpenDomain: see uct.Component.
func (component) OpenDomain(i uct.DomainInfo, c uct.DomainConfig) (uct.Domain, error) {
	if i.Component != transportName || i.Name != transportName {
		return nil, fmt.Errorf("open shm domain %s/%s: %w", i.Component, i.Name, ucs.ErrInvalid)
	}
	return &domain{settings: c.Settings, log: c.Log, id: mapped.NewID(), keys: new(mapped.Keys), remotes: make(map[uct.UUID]*remote)}, nil
}
