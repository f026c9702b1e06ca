package ud

import (
	"sync"

	"github.com/goucx/goucx/ucs/async"
)

// shared is the async goroutine of all ud interfaces of the process, there while
// any is open.
var shared struct {
	sync.Mutex
	users int
	a     *async.Async
}

// newOwner registers an interface with the async goroutine.
func newOwner() (*async.Owner, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.a == nil {
		a, err := async.New(async.Config{})
		if err != nil {
			return nil, err
		}
		shared.a = a
	}
	o, err := shared.a.NewOwner()
	if err == nil {
		shared.users++
	} else if shared.users == 0 {
		_ = shared.a.Close() // as good as never made
		shared.a = nil
	}
	return o, err
}

// closeOwner ends the registration.
func closeOwner(o *async.Owner) error {
	err := o.Close()
	shared.Lock()
	defer shared.Unlock()
	if shared.users--; shared.users > 0 {
		return err
	}
	a := shared.a
	shared.a = nil
	if e := a.Close(); err == nil {
		err = e
	}
	return err
}
