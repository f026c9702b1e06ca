package ucp

import (
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats/live"
)

// When a worker publishes a summary that no reader requested.
const (
	summaryInterval = ucs.Time(100 * time.Millisecond)
	// summaryShare limits the time spent on summaries to 1/displayShare.
	summaryShare = 50
)

// display is a worker's part of the live statistics that the program publishes. The
// goroutine that progresses the worker publishes summaries; so does any goroutine that
// holds its lock. The context's goroutine reads them and never waits for a lock of the
// worker.
type display struct {
	mode      ThreadMode
	requested atomic.Bool   // a reader waits; pairs with look and arming
	armed     atomic.Bool   // the worker has not looked around since it last armed
	replied   chan struct{} // the owner has seen wanted
	last      atomic.Pointer[summary]

	next      ucs.Time            // time of the next summary
	liveSince map[uint64]ucs.Time // requests of the last one, with the time since when they are live
}

// summary is a published summary. It is immutable.
type summary struct {
	at ucs.Time
	live.Summary
}

// newDisplay returns the display of a new worker, nil if the program publishes nothing.
func (x *Context) newDisplay(m ThreadMode) *display {
	if x.liveStats == nil {
		return nil
	}
	d := &display{mode: m, replied: make(chan struct{}, 1)}
	d.last.Store(&summary{at: ucs.Now()})
	return d
}

// publishIfDue publishes a summary if one is requested or the interval has expired. A worker
// calls it regularly in progress.
func (d *display) publishIfDue(w *thread, now ucs.Time) {
	d.armed.Store(false)
	if d.requested.Load() || !now.Before(d.next) {
		d.publish(w, now)
		d.notifyReader()
	}
}

// publishBeforeSleep is look before the owner sleeps or the program waits on EventFD, since the
// next call of look may be late. With ThreadMulti the reader can take the lock and make
// the summary itself.
//
//go:noinline
func (d *display) publishBeforeSleep(w *thread) {
	d.armed.Store(true)
	if now := ucs.Now(); d.mode != ThreadMulti && (d.requested.Load() || !now.Before(d.next)) {
		d.publish(w, now)
	}
	d.notifyReader()
}

func (d *display) publish(w *thread, now ucs.Time) {
	d.last.Store(&summary{now, w.summary(d, now)})
	d.next = now + max(summaryInterval, summaryShare*(ucs.Now()-now))
}

// notifyReader notifies the reader that the owner has handled its request.
func (d *display) notifyReader() {
	if d.requested.Swap(false) {
		select {
		case d.replied <- struct{}{}:
		default:
		}
	}
}

// request requests a new summary, and wakes a sleeping owner.
func (d *display) request(w *thread) {
	select {
	case <-d.replied: // a notification of an earlier request that timed out
	default:
	}
	d.requested.Store(true)
	w.signal()
}

// snapshot waits for the owner until limit expires, and returns the last summary.
func (d *display) snapshot(w *thread, limit *time.Timer) live.Worker {
	a := live.Worker{Name: shortID(w.id), Mode: d.mode.String(), Responsive: d.wait(limit), Armed: d.armed.Load(), Counters: map[string]uint64{}}
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

// wait reports whether the owner responded before limit expired.
func (d *display) wait(limit *time.Timer) bool {
	select {
	case <-d.replied:
		return true
	case <-limit.C:
		limit.Reset(0) // for the remaining workers
	}
	select {
	case <-d.replied:
		return true
	default:
		return false
	}
}
