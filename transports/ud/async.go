package ud

import (
	"errors"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs/async"
)

// newOwner registers an interface with the async goroutine.
func newOwner() (*async.Owner, error) {
	a, err := nic.UseAsync()
	if err != nil {
		return nil, err
	}
	o, err := a.NewOwner()
	if err != nil {
		return nil, errors.Join(err, nic.DropAsync())
	}
	return o, nil
}

// closeOwner ends the registration.
func closeOwner(o *async.Owner) error { return errors.Join(o.Close(), nic.DropAsync()) }
