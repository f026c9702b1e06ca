package ibv

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// ProviderName is Provider.Name.
const ProviderName = "ibv"

// Config configures the devices of a provider. The zero value is the default.
type Config struct {
	// GIDIndex is the entry of the GID table that ports use, if HasGIDIndex is set. Otherwise the
	// provider chooses one: RoCE v2 with a routable IPv4 address, then with another routable address,
	// then with a link-local one.
	GIDIndex int
	// HasGIDIndex: GIDIndex is valid.
	HasGIDIndex bool
	// TrafficClass is the traffic class of address vectors, 0 to 255: DSCP and ECN.
	TrafficClass uint8
	// SL is the service level of address vectors, 0 to 15.
	SL uint8
	// PKey is the partition key that ports use; 0: the first full one of the table. Its upper bit does not
	// count.
	PKey uint16
}

// Validate returns all faults of the configuration.
//
// Errors: ucs.ErrInvalid.
func (c *Config) Validate() error {
	var errs []error
	if c.HasGIDIndex && (c.GIDIndex < 0 || c.GIDIndex > maxGIDIndex) {
		errs = append(errs, fmt.Errorf("GID index %d, want 0 to %d: %w", c.GIDIndex, maxGIDIndex, ucs.ErrInvalid))
	}
	if c.SL > 15 {
		errs = append(errs, fmt.Errorf("service level %d, want 0 to 15: %w", c.SL, ucs.ErrInvalid))
	}
	if c.PKey == fullMember { // unused entries of the table have number 0
		errs = append(errs, fmt.Errorf("partition key %#x, want a number from 1 to %#x in its lower 15 bits: %w", c.PKey, fullMember-1, ucs.ErrInvalid))
	}
	return errors.Join(errs...)
}

// fullMember is the bit of a P_Key that permits contact with limited members.
const fullMember = 1 << 15

// maxGIDIndex is the last index that an address vector can hold.
const maxGIDIndex = 255

// ErrNotBuilt is the reason why a program without the build tag has no devices of this package.
var ErrNotBuilt = fmt.Errorf("built without tag ibverbs (go build -tags ibverbs, with cgo and libibverbs-dev): %w", ucs.ErrUnsupported)
