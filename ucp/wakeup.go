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

// wakeup is what a sleeper needs.
type wakeup struct {
	signal  *shmem.EventFD
	raised  atomic.Bool // signal is up, or about to be; pairs with Signal
	problem error       // why there is no event descriptor
	tend    *time.Timer // calls Signal, for what is due without a sign
}

// signalData tells the worker's own flag from the ifaces in slowEvents.set.
const signalData = 1 << 32

// openWakeup watches all ifaces through one descriptor.
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
	for k, p := range w.ports {
		if fd := p.iface.EventFD(); fd >= 0 && err == nil {
			err = set.Add(fd, uint64(k), shmem.EventIn)
		}
	}
	if err != nil {
		return errors.Join(err, flag.Close(), set.Close())
	}
	w.slow.set, w.wake.signal = set, flag
	return nil
}

// EventFD is a descriptor that becomes readable after Arm when there is
// something to progress. It is the worker's own: do not read or close it. After Close
// EventFD returns ErrClosed.
func (w *Worker) EventFD() (int, error) {
	w.t.lock()
	defer w.t.unlock()
	if w.closed.Load() {
		return -1, fmt.Errorf("event descriptor: %w", ErrClosed)
	}
	if w.slow.set == nil {
		return -1, fmt.Errorf("event descriptor: %w", w.wake.problem)
	}
	return w.slow.set.FD(), nil
}

// Arm asks for a wake-up through EventFD. ErrBusy: something is there already,
// or Signal was called; progress, then arm again.
func (w *Worker) Arm() error {
	w.t.lock()
	defer w.t.unlock()
	if w.closed.Load() {
		return fmt.Errorf("arm: %w", ErrClosed)
	}
	if w.slow.set == nil {
		return fmt.Errorf("arm: %w", w.wake.problem)
	}
	if w.baton.held && !w.baton.inPoll || w.lowerSignal() || len(w.calls)+len(w.am.failed) > 0 {
		return ErrBusy
	}
	w.am.keep.tend()
	for _, p := range w.ports {
		switch st := p.arm(uct.EventRecv | uct.EventSend); st {
		case ucs.OK, ucs.Unsupported:
		case ucs.Busy, ucs.InProgress:
			w.lookSoon()
			return ErrBusy
		default:
			return fmt.Errorf("arm %s: %w", p.name(), statusErr(st))
		}
	}
	if w.show != nil {
		w.show.arming(w)
	}
	within := w.tendEvery
	if sweep := w.slab.sweepAll(ucs.Now()); sweep > 0 && (within == 0 || sweep < within) {
		within = sweep
	}
	w.wake.within(within, w.Signal)
	return nil
}

// within calls signal, where every is not 0, unless it is called again before.
func (k *wakeup) within(every time.Duration, signal func()) {
	switch {
	case every == 0:
		k.stop()
	case k.tend == nil:
		k.tend = time.AfterFunc(every, signal)
	default:
		k.tend.Reset(every)
	}
}

func (k *wakeup) stop() {
	if k.tend != nil {
		k.tend.Stop()
	}
}

// Signal wakes who sleeps on EventFD; with nobody asleep the next Arm answers
// ErrBusy. Safe from any goroutine, also after Close.
func (w *Worker) Signal() {
	if w.wake.raised.Swap(true) || w.wake.signal == nil {
		return
	}
	_ = w.wake.signal.Signal() // an error means closed: nobody sleeps
}

// lowerSignal takes a Signal back and reports whether there was one.
func (w *Worker) lowerSignal() bool {
	if !w.wake.raised.Load() {
		return false
	}
	// A Signal between the two stays in raised, where the next Arm finds it.
	w.wake.raised.Store(false)
	if w.wake.signal != nil {
		w.wake.signal.Drain()
	}
	return true
}

func (w *Worker) closeWakeup() error {
	w.sleeper.unwatch()
	w.wake.stop()
	if w.slow.set == nil {
		return nil
	}
	return errors.Join(w.slow.set.Close(), w.wake.signal.Close())
}
