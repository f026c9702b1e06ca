package ucp

import (
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats/live"
)

// When a worker publishes a summary without being asked.
const (
	displayEvery = ucs.Time(100 * time.Millisecond)
	// displayShare of the time, as 1/n, is the most that summaries may take.
	displayShare = 50
)

// display is a worker's part in what the program shows. The worker's owner
// publishes summaries, or whoever holds its lock; the context's goroutine reads
// them and waits for nobody.
type display struct {
	mode   ThreadMode
	wanted atomic.Bool   // a reader waits; pairs with look and arming
	asleep atomic.Bool   // since the worker last armed it has not looked around
	fresh  chan struct{} // the owner has seen wanted
	last   atomic.Pointer[summary]

	due  ucs.Time            // of the next summary
	seen map[uint64]ucs.Time // requests of the last one, since when
}

// summary is what was published, never changed again.
type summary struct {
	at ucs.Time
	live.Summary
}

// newDisplay gives the display of a new worker, nil where nothing is shown.
func (x *Context) newDisplay(m ThreadMode) *display {
	if x.offering == nil {
		return nil
	}
	d := &display{mode: m, fresh: make(chan struct{}, 1)}
	d.last.Store(&summary{at: ucs.Now()})
	return d
}

// look publishes where that is due. It stands where a worker that progresses
// looks around.
func (d *display) look(w *Worker, now ucs.Time) {
	d.asleep.Store(false)
	if d.wanted.Load() || !now.Before(d.due) {
		d.publish(w, now)
		d.answered()
	}
}

// arming is look before the owner sleeps, or leaves the waiting to the program:
// it may be long before the next. With ThreadMulti the lock may be free, so that
// the reader makes the summary.
//
//go:noinline
func (d *display) arming(w *Worker) {
	d.asleep.Store(true)
	if now := ucs.Now(); d.mode != ThreadMulti && (d.wanted.Load() || !now.Before(d.due)) {
		d.publish(w, now)
	}
	d.answered()
}

func (d *display) publish(w *Worker, now ucs.Time) {
	d.last.Store(&summary{now, w.summary(d, now)})
	d.due = now + max(displayEvery, displayShare*(ucs.Now()-now))
}

// answered tells the reader that the owner is there.
func (d *display) answered() {
	if d.wanted.Swap(false) {
		select {
		case d.fresh <- struct{}{}:
		default:
		}
	}
}

// ask wants a new summary, and wakes a sleeper for it.
func (d *display) ask(w *Worker) {
	select {
	case <-d.fresh: // an answer that came too late
	default:
	}
	d.wanted.Store(true)
	w.Signal()
}

// answer waits for the owner until the timer ends, and gives the last summary.
func (d *display) answer(w *Worker, limit *time.Timer) live.Worker {
	a := live.Worker{Name: shortID(w.id), Mode: d.mode.String(), Fresh: d.wait(limit), Armed: d.asleep.Load(), Counters: map[string]uint64{}}
	if d.mode == ThreadMulti && w.mu.TryLock() {
		d.publish(w, ucs.Now())
		w.mu.Unlock()
	}
	s := d.last.Load()
	a.AgeSeconds, a.Summary = ucs.Now().Sub(s.at).Seconds(), s.Summary
	for _, c := range w.stats.Snapshot() {
		a.Counters[c.Name] = c.Value
	}
	return a
}

// wait reports whether the owner has answered in time.
func (d *display) wait(limit *time.Timer) bool {
	select {
	case <-d.fresh:
		return true
	case <-limit.C:
		limit.Reset(0) // for the workers after this one
	}
	select {
	case <-d.fresh:
		return true
	default:
		return false
	}
}
