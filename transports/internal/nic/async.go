package nic

import (
	"errors"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/async"
	"github.com/goucx/goucx/verbs"
)

// shared is the process's async goroutine for all transports over verbs. It exists while it has
// users.
var shared struct {
	sync.Mutex
	users int
	a     *async.Async
}

// acquireAsync returns the process's async goroutine. Each call must be followed by releaseAsync.
func acquireAsync() (*async.Async, error) {
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

// releaseAsync undoes acquireAsync. The last one ends the goroutine. It must not be called from a
// function that the goroutine runs.
func releaseAsync() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.users--; shared.users > 0 {
		return nil
	}
	a := shared.a
	shared.a = nil
	return a.Close()
}

// asyncEvents holds the callbacks for asynchronous events of a device: SRQ limit and QP errors.
type asyncEvents struct {
	mu        sync.Mutex // guards the rest; held while one of fns runs
	onLimit   map[verbs.SRQ]func()
	onQPError map[verbs.SRQ]func(verbs.QPN) // see OnQPError
	async     *async.Async                  // nil: no callbacks
}

// OnSRQLimit registers fn for the limit event of q, until OffSRQLimit. The async goroutine calls fn, one
// call at a time. On systems without event descriptors fn is never called.
func (d *Domain) OnSRQLimit(q verbs.SRQ, fn func()) error {
	l := &d.dev.events
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.async == nil {
		a, err := acquireAsync()
		if err != nil {
			return err
		}
		if fd := d.ctx.AsyncFD(); fd >= 0 {
			err = a.Watch(fd, d.dev.handleEvents)
		}
		if err != nil && !errors.Is(err, ucs.ErrUnsupported) {
			return errors.Join(err, releaseAsync())
		}
		l.async, l.onLimit, l.onQPError = a, map[verbs.SRQ]func(){}, map[verbs.SRQ]func(verbs.QPN){}
	}
	l.onLimit[q] = fn
	return nil
}

// OnQPError registers fn for access errors and invalid requests at a responder QP of the
// device, including QPs of other interfaces. The QP enters the error state. The async goroutine
// calls fn with its number. OnSRQLimit must have been called for q; OffSRQLimit ends both. fn must not
// wait for the interface.
func (d *Domain) OnQPError(q verbs.SRQ, fn func(verbs.QPN)) {
	l := &d.dev.events
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onQPError[q] = fn
}

// OffSRQLimit removes the callbacks for q. They do not run after it returns.
func (d *Domain) OffSRQLimit(q verbs.SRQ) error {
	l := &d.dev.events
	l.mu.Lock()
	delete(l.onLimit, q)
	delete(l.onQPError, q)
	if l.async == nil || len(l.onLimit) > 0 {
		l.mu.Unlock()
		return nil
	}
	_ = l.async.Unwatch(d.ctx.AsyncFD()) // an error means that it was not watched
	l.async = nil
	l.mu.Unlock() // the async goroutine may wait for the mutex
	return releaseAsync()
}

// handleEvents processes the device's asynchronous events in the async goroutine. Of the QP
// events it handles rejected requests only: these have no completion at the responder.
func (d *device) handleEvents() {
	l := &d.events
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.onLimit) > 0 { // without callbacks the device may be closed
		e, ok := d.ctx.TryAsync()
		if !ok {
			return
		}
		switch e.Type {
		case verbs.EventSRQLimitReached:
			if fn := l.onLimit[e.SRQ]; fn != nil {
				fn()
			}
		case verbs.EventQPAccessErr, verbs.EventQPReqErr:
			for _, fn := range l.onQPError {
				fn(e.QP.QPN())
			}
		default: // transports handle no other event
		}
		d.ctx.Ack(e)
	}
}
