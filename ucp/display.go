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
	fresh  chan struct{} // told after a wanted summary
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
	if d.wanted.Load() || !now.Before(d.due) {
		d.publish(w, now, false)
	}
}

// arming is look before the owner sleeps: it may be long before the next.
//
//go:noinline
func (d *display) arming(w *Worker) {
	if now := ucs.Now(); d.wanted.Load() || !now.Before(d.due) {
		d.publish(w, now, true)
	}
}

func (d *display) publish(w *Worker, now ucs.Time, armed bool) {
	s := &summary{at: now, Summary: w.summary(d, now)}
	s.Armed = armed
	d.last.Store(s)
	d.due = now + max(displayEvery, displayShare*(ucs.Now()-now))
	if d.wanted.Swap(false) {
		select {
		case d.fresh <- struct{}{}:
		default:
		}
	}
}

// ask wants a new summary. A sleeper is woken for it; with ThreadMulti it is
// made here where the lock is free.
func (d *display) ask(w *Worker) {
	select {
	case <-d.fresh: // of an answer that came too late
	default:
	}
	d.wanted.Store(true)
	if d.mode == ThreadMulti && w.mu.TryLock() {
		d.publish(w, ucs.Now(), d.last.Load().Armed)
		w.mu.Unlock()
		return
	}
	w.Signal()
}

// answer waits for the summary until the timer ends, and gives the last one.
func (d *display) answer(w *Worker, limit *time.Timer) live.Worker {
	fresh := false
	select {
	case <-d.fresh:
		fresh = true
	case <-limit.C:
		select {
		case <-d.fresh:
			fresh = true
		default:
		}
		limit.Reset(0) // for the workers after this one
	}
	s := d.last.Load()
	a := live.Worker{
		Name: shortID(w.id), Mode: d.mode.String(), Fresh: fresh,
		AgeSeconds: ucs.Now().Sub(s.at).Seconds(), Summary: s.Summary, Counters: map[string]uint64{},
	}
	for _, c := range w.stats.Snapshot() {
		a.Counters[c.Name] = c.Value
	}
	return a
}
