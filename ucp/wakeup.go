package ucp

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// Wake-up. Invariant: a Signal is never lost. It sets raised before it writes the EventFD,
// and lowerSignal clears raised before it drains the EventFD. So a Signal that lowerSignal
// has not reported stays in raised. Arm and sleep look at raised before they block.

// wakeup is the state of wake-ups through the event descriptors.
type wakeup struct {
	signal       *shmem.EventFD
	raised       atomic.Bool // signal is raised, or about to be; Signal sets it, lowerSignal clears it
	problem      error       // why there is no event descriptor
	serviceTimer *time.Timer // calls Signal when something is due that causes no wake-up
}

// signalData identifies the worker's own EventFD among those of the ifaces in
// slowPoll.set.
const signalData = 1 << 32

// openWakeup opens one descriptor that watches the EventFDs of all ifaces.
func (w *Worker) openWakeup() error {
	set, err := shmem.NewEpoll()
	if err != nil {
		return err
	}
	flag, err := shmem.NewEventFD()
	if err != nil {
		return errors.Join(err, set.Close())
	}
	err = set.Add(flag.FD(), signalData, shmem.EventIn)
	for k, wi := range w.t.ifaces {
		if fd := wi.iface.EventFD(); fd >= 0 && err == nil {
			err = set.Add(fd, uint64(k), shmem.EventIn)
		}
	}
	if err != nil {
		return errors.Join(err, flag.Close(), set.Close())
	}
	w.t.slow.set, w.t.wake.signal = set, flag
	return nil
}

// EventFD returns a descriptor that becomes readable after Arm when there is something
// to progress. The worker owns it: do not read or close it. After Close EventFD
// returns ErrClosed.
func (w *Worker) EventFD() (int, error) {
	w.t.lock()
	defer w.t.unlock()
	if w.t.closed.Load() {
		return -1, fmt.Errorf("event descriptor: %w", ErrClosed)
	}
	if w.t.slow.set == nil {
		return -1, fmt.Errorf("event descriptor: %w", w.t.wake.problem)
	}
	return w.t.slow.set.FD(), nil
}

// Arm requests a wake-up through EventFD. It returns ErrBusy if there is something to
// progress already, or Signal was called: progress, then arm again.
func (w *Worker) Arm() error {
	w.t.lock()
	defer w.t.unlock()
	if w.t.closed.Load() {
		return fmt.Errorf("arm: %w", ErrClosed)
	}
	if w.t.slow.set == nil {
		return fmt.Errorf("arm: %w", w.t.wake.problem)
	}
	if w.t.owner.held && !w.t.owner.sleeping || w.t.lowerSignal() || len(w.t.dueCallbacks)+len(w.t.am.failureCalls) > 0 {
		return ErrBusy
	}
	w.t.am.retainer.service()
	for _, wi := range w.t.ifaces {
		switch st := wi.arm(uct.EventRecv | uct.EventSend); st {
		case ucs.OK, ucs.Unsupported:
		case ucs.Busy, ucs.InProgress:
			w.t.forceSlowPoll()
			return ErrBusy
		default:
			return fmt.Errorf("arm %s: %w", wi.name(), statusErr(st))
		}
	}
	if w.t.show != nil {
		w.t.show.publishBeforeSleep(&w.t)
	}
	within := w.t.serviceInterval
	if sweep := w.t.slab.SweepAll(ucs.Now()); sweep > 0 && (within == 0 || sweep < within) {
		within = sweep
	}
	w.t.wake.within(within, w.t.signal)
	return nil
}

// within schedules a call of signal after every, unless within is called again before. If
// every is 0 it schedules none.
func (k *wakeup) within(every time.Duration, signal func()) {
	switch {
	case every == 0:
		k.stop()
	case k.serviceTimer == nil:
		k.serviceTimer = time.AfterFunc(every, signal)
	default:
		k.serviceTimer.Reset(every)
	}
}

func (k *wakeup) stop() {
	if k.serviceTimer != nil {
		k.serviceTimer.Stop()
	}
}

// Signal wakes a goroutine that sleeps on EventFD. If none sleeps, the next Arm returns
// ErrBusy. It is safe for use from any goroutine, also after Close.
func (w *Worker) Signal() { w.t.signal() }

func (w *thread) signal() {
	if w.wake.raised.Swap(true) || w.wake.signal == nil {
		return
	}
	_ = w.wake.signal.Signal() // it fails only if the worker is closed: no goroutine sleeps
}

// lowerSignal clears a Signal and reports whether there was one.
func (w *thread) lowerSignal() bool {
	if !w.wake.raised.Load() {
		return false
	}
	// A Signal between the store and the drain leaves raised set although the EventFD is
	// drained. The next Arm or sleep finds it.
	w.wake.raised.Store(false)
	if w.wake.signal != nil {
		w.wake.signal.Drain()
	}
	return true
}

func (w *thread) closeWakeup() error {
	w.sleeper.unwatch()
	w.wake.stop()
	if w.slow.set == nil {
		return nil
	}
	return errors.Join(w.slow.set.Close(), w.wake.signal.Close())
}
