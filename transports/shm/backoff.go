package shm

import (
	"time"

	"go.uber.org/zap"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

const (
	// acceptPause is the time without accept after this process ran out of descriptors.
	// The listener stays readable in that state and would wake the worker repeatedly.
	acceptPause = 10 * time.Millisecond
	// closeDialTimeout is the maximum time that Close waits for peers whose backlog is full.
	closeDialTimeout = 100 * time.Millisecond
)

// pauseAccept stops polling the listener for acceptPause. A timer then wakes the worker
// if it sleeps.
func (f *iface) pauseAccept() {
	if f.acceptPausedUntil != 0 || f.epoll.Del(f.listener.FD()) != nil {
		return
	}
	f.acceptPausedUntil = ucs.Now().Add(acceptPause)
	event := f.event
	f.acceptTimer = time.AfterFunc(acceptPause, func() { _ = event.Signal() }) // fails only if the event is closed
}

// resumeAccept polls the listener again after the pause.
func (f *iface) resumeAccept(now ucs.Time) {
	if f.acceptPausedUntil == 0 || now < f.acceptPausedUntil {
		return
	}
	f.acceptPausedUntil = 0
	if err := f.epoll.Add(f.listener.FD(), evAccept, shmem.EventIn); err != nil {
		f.d.logf("poll the listener", err)
	}
}

// dialBeforeClose waits, at most closeDialTimeout, for the peers to which OPEN and messages are still
// to be sent. Messages to the others are lost; it logs the number of connections.
func (f *iface) dialBeforeClose() {
	limit := ucs.Now().Add(closeDialTimeout)
	for f.dialAll(); f.countUnsent() > 0 && ucs.Now() < limit; f.dialAll() {
		time.Sleep(time.Millisecond)
	}
	if n := f.countUnsent(); n > 0 && f.d.log != nil {
		f.d.log.Warn("closed before peers were reachable; messages to them are lost", zap.Int("connections", n))
	}
}

// hasUnsent reports whether the connection, whose OPEN is not sent yet, holds messages or a
// CLOSE.
func (e *ep) hasUnsent() bool { return e.M.Closing() || e.tx.Head() > 1 }

// countUnsent returns the number of connections with messages whose OPEN is not sent yet.
func (f *iface) countUnsent() (n int) {
	for _, e := range f.undialed {
		if e.undialed() && e.hasUnsent() {
			n++
		}
	}
	return n
}
