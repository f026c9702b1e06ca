//go:build !(linux && cgo && ibverbs)

package ibv

import "github.com/goucx/goucx/verbs"

// Built returns why the program cannot use RDMA devices: it was built without the tag. It
// returns nil if it can.
func Built() error { return ErrNotBuilt }

// Provider lists no device: the program was built without the tag.
type Provider struct{}

// New returns a provider.
func New(Config) *Provider { return &Provider{} }

// Name returns "ibv".
func (p *Provider) Name() string { return ProviderName }

// Devices returns ErrNotBuilt.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) { return nil, ErrNotBuilt }

// Open returns ErrNotBuilt.
func (p *Provider) Open(verbs.DeviceInfo) (verbs.Context, error) { return nil, ErrNotBuilt }
