package nic

import (
	"errors"
	"fmt"
	"slices"
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

// ErrDeviceFailed is the reason of connections that end because the device of this side was removed or has
// failed.
var ErrDeviceFailed = fmt.Errorf("%w: this side: %w", ucs.ErrPeerFailed, verbs.ErrDeviceGone)

// Watcher are callbacks for asynchronous events of a device. The async goroutine calls them, one at a
// time. They must not wait for the interface. Each may be nil.
type Watcher struct {
	// SRQ is the queue of OnLimit.
	SRQ verbs.SRQ
	// OnLimit: the limit event of SRQ.
	OnLimit func()
	// OnQPError: a responder's QP of the device, which may be another interface's, has rejected a
	// request and entered the error state.
	OnQPError func(verbs.QPN)
	// OnFailure: the device was removed or has failed, and completes nothing any more.
	OnFailure func()
}

// asyncEvents holds the watchers of a device.
type asyncEvents struct {
	mu       sync.Mutex // guards the rest; held while a watcher is called
	watchers []*Watcher
	async    *async.Async // nil: no watchers
	failed   bool         // the device has failed
}

// Watch registers w until Unwatch, once. A device that has failed before calls OnFailure at once. On systems
// without event descriptors nothing is called.
func (d *Domain) Watch(w *Watcher) error {
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
		l.async = a
	}
	if slices.Contains(l.watchers, w) {
		return nil
	}
	l.watchers = append(l.watchers, w)
	if l.failed && w.OnFailure != nil {
		w.OnFailure()
	}
	return nil
}

// Unwatch removes w. Its functions do not run after it returns. It does nothing if w is not registered.
func (d *Domain) Unwatch(w *Watcher) error {
	l := &d.dev.events
	l.mu.Lock()
	l.watchers = slices.DeleteFunc(l.watchers, func(x *Watcher) bool { return x == w })
	if l.async == nil || len(l.watchers) > 0 {
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
	for len(l.watchers) > 0 { // without watchers the device may be closed
		e, ok := d.ctx.TryAsync()
		if !ok {
			return
		}
		for _, w := range l.watchers {
			w.handle(e)
		}
		l.failed = l.failed || e.Type == verbs.EventDeviceFatal
		d.ctx.Ack(e)
	}
}

// handle calls the function of an event; transports handle no other one.
func (w *Watcher) handle(e verbs.AsyncEvent) {
	switch e.Type {
	case verbs.EventSRQLimitReached:
		if e.SRQ == w.SRQ && w.OnLimit != nil {
			w.OnLimit()
		}
	case verbs.EventQPAccessErr, verbs.EventQPReqErr:
		if w.OnQPError != nil {
			w.OnQPError(e.QP.QPN())
		}
	case verbs.EventDeviceFatal:
		if w.OnFailure != nil {
			w.OnFailure()
		}
	default:
	}
}
