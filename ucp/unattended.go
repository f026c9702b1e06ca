package ucp

import (
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// With ThreadMulti, operations that waited for a connection are sent although no
// goroutine progresses the worker: the transport's async goroutine resumes them. It
// tries to acquire the worker's lock and the progress ownership, and never waits for
// either. With both it acts as the goroutine that progresses, but it receives no
// message and runs no callback of the program. Callbacks that become due meanwhile
// run in the next pass of the program.

const (
	// resumeTurn is how long a turn starts operations. Those started last, and what
	// they put on the wire together, are done within 50 us.
	resumeTurn = 25 * time.Microsecond
	// resumeAgain is the delay until the next turn. While no operation moves, the delay
	// doubles up to resumeRest.
	resumeAgain = 500 * time.Microsecond
	resumeRest  = 16 * time.Millisecond
)

// unattended returns the port's uct.IfaceConfig.Unattended, nil if it has none.
func (wi *workerIface) unattended(mode ThreadMode) func() time.Duration {
	if mode != ThreadMulti {
		return nil // only the program's goroutine may use the worker
	}
	return wi.resumeUnattended
}

// resumeUnattended resumes the operations that wait on the port's lanes, for one turn.
// It returns the delay until the next turn; a negative delay means none.
func (wi *workerIface) resumeUnattended() time.Duration {
	w := &wi.w.t
	if !w.mu.TryLock() {
		return resumeAgain
	}
	f, ok := wi.iface.(uct.Unattended)
	if !ok || w.closed.Load() {
		w.unlockShared()
		return -1
	}
	if w.owner.held {
		// An owner that polls resumes them. One that sleeps was woken by the transport.
		again := resumeAgain
		if w.owner.sleeping || !f.PendingLeft() {
			again = -1
		}
		w.unlockShared()
		return again
	}
	w.owner.held = true
	wi.inAsyncTurn = true
	moved, left := f.ResumePending(ucs.Now().Add(resumeTurn))
	wi.inAsyncTurn = false
	due := len(w.dueCallbacks)+len(w.am.failureCalls) > 0
	w.transferProgress()
	w.unlockShared()
	if due {
		w.signal() // a program that sleeps on EventFD runs them
	}
	switch {
	case !left:
		wi.resumeDelay = 0
		return -1
	case moved > 0:
		wi.resumeDelay = resumeAgain
	default:
		wi.resumeDelay = min(max(2*wi.resumeDelay, resumeAgain), resumeRest)
	}
	return wi.resumeDelay
}
