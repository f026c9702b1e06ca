package shm

import (
	"time"

	"go.uber.org/zap"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

const (
	// acceptPause is how long a process without descriptors leaves new connections
	// alone: they stay readable, and would keep a sleeper awake.
	acceptPause = 10 * time.Millisecond
	// lastDial bounds how long Close waits for peers whose backlog is full.
	lastDial = 100 * time.Millisecond
)

// pauseAccept does not look at the listener for a while. A timer ends the sleep of
// who sleeps then.
func (f *iface) pauseAccept() {
	if f.deafUntil != 0 || f.epoll.Del(f.listener.FD()) != nil {
		return
	}
	f.deafUntil = ucs.Now().Add(acceptPause)
	event := f.event
	f.alarm = time.AfterFunc(acceptPause, func() { _ = event.Signal() }) // an error means closed
}

// resumeAccept ends it.
func (f *iface) resumeAccept(now ucs.Time) {
	if f.deafUntil == 0 || now < f.deafUntil {
		return
	}
	f.deafUntil = 0
	if err := f.epoll.Add(f.listener.FD(), evAccept, shmem.EventIn); err != nil {
		f.d.logf("look at new connections", err)
	}
}

// dialLast waits, bounded, for peers that could not be dialled yet and to which
// something was sent. What cannot be delivered then is lost, and logged.
func (f *iface) dialLast() {
	limit := ucs.Now().Add(lastDial)
	for f.dialAll(); f.unsaid() > 0 && ucs.Now() < limit; f.dialAll() {
		time.Sleep(time.Millisecond)
	}
	if n := f.unsaid(); n > 0 && f.d.log != nil {
		f.d.log.Warn("closed before peers could be reached; what was sent to them is lost", zap.Int("connections", n))
	}
}

// sent reports whether the connection, not dialled yet, holds something.
func (e *ep) sent() bool { return e.m.SaidBye() || e.tx.Head() > 1 }

// unsaid counts connections that could not be dialled and hold messages.
func (f *iface) unsaid() (n int) {
	for _, e := range f.undialed {
		if e.undialed() && e.sent() {
			n++
		}
	}
	return n
}
