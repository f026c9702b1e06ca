package nic

import (
	"errors"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/async"
	"github.com/goucx/goucx/verbs"
)

// shared is the async goroutine of all transports over verbs in the process, there
// while anybody uses it.
var shared struct {
	sync.Mutex
	users int
	a     *async.Async
}

// UseAsync gives the process's async goroutine. Each use ends with DropAsync.
func UseAsync() (*async.Async, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.a == nil {
		a, err := async.New(async.Config{})
		if err != nil {
			return nil, err
		}
		shared.a = a
	}
	shared.users++
	return shared.a, nil
}

// DropAsync ends a use; with the last the goroutine ends. Not from a function that
// it runs.
func DropAsync() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.users--; shared.users > 0 {
		return nil
	}
	a := shared.a
	shared.a = nil
	return a.Close()
}

// NewOwner registers an interface with the process's async goroutine. It ends with
// CloseOwner.
func NewOwner() (*async.Owner, error) {
	a, err := UseAsync()
	if err != nil {
		return nil, err
	}
	o, err := a.NewOwner()
	if err != nil {
		return nil, errors.Join(err, DropAsync())
	}
	return o, nil
}

// CloseOwner ends the registration.
func CloseOwner(o *async.Owner) error { return errors.Join(o.Close(), DropAsync()) }

// lowQueues are the shared receive queues of a device that want to know when they
// run low.
type lowQueues struct {
	mu    sync.Mutex // guards the rest, and is held while one of fns runs
	fns   map[verbs.SRQ]func()
	fails map[verbs.SRQ]func(verbs.QPN) // see OnRefused
	watch *async.Async                  // nil: there are none
}

// OnLow has fn called in the async goroutine when q's limit event comes, one at a
// time, until OffLow. Where the system has no descriptors for events it is never
// called.
func (d *Domain) OnLow(q verbs.SRQ, fn func()) error {
	l := &d.dev.low
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watch == nil {
		a, err := UseAsync()
		if err != nil {
			return err
		}
		if fd := d.ctx.AsyncFD(); fd >= 0 {
			err = a.Watch(fd, d.dev.takeEvents)
		}
		if err != nil && !errors.Is(err, ucs.ErrUnsupported) {
			return errors.Join(err, DropAsync())
		}
		l.watch, l.fns, l.fails = a, map[verbs.SRQ]func(){}, map[verbs.SRQ]func(verbs.QPN){}
	}
	l.fns[q] = fn
	return nil
}

// OnRefused has fn called in the async goroutine with the number of each queue pair of
// the device that has refused a request and enters the error state: those of other
// interfaces too. q is a queue for which OnLow was called; OffLow ends both. fn must not
// wait for the interface.
func (d *Domain) OnRefused(q verbs.SRQ, fn func(verbs.QPN)) {
	l := &d.dev.low
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails[q] = fn
}

// OffLow ends OnLow; afterwards its function does not run.
func (d *Domain) OffLow(q verbs.SRQ) error {
	l := &d.dev.low
	l.mu.Lock()
	delete(l.fns, q)
	delete(l.fails, q)
	if l.watch == nil || len(l.fns) > 0 {
		l.mu.Unlock()
		return nil
	}
	_ = l.watch.Unwatch(d.ctx.AsyncFD()) // where it was not watched, that is all right
	l.watch = nil
	l.mu.Unlock() // the goroutine may wait for it
	return DropAsync()
}

// takeEvents takes the device's events in the async goroutine. Of the events of queue
// pairs it takes refused requests alone: they have no completion at the responder.
func (d *device) takeEvents() {
	l := &d.low
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.fns) > 0 { // else the device may be closed
		e, ok := d.ctx.TryAsync()
		if !ok {
			return
		}
		switch e.Type {
		case verbs.EventSRQLimitReached:
			if fn := l.fns[e.SRQ]; fn != nil {
				fn()
			}
		case verbs.EventQPAccessErr, verbs.EventQPReqErr:
			for _, fn := range l.fails {
				fn(e.QP.QPN())
			}
		default: // no event that a transport acts on
		}
		d.ctx.Ack(e)
	}
}
