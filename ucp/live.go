package ucp

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats/live"
)

var rowStatsDest = config.New("STATS_DEST", live.Off, statsDest(), "",
	"Where a running program shows its endpoints, requests and counters to ucx_info --live. unix: a directory of this user; empty: nowhere.")

// statsDest returns a parser that accepts the destinations of package live.
func statsDest() config.Parser[string] {
	p := config.String()
	text := p.Parse
	p.Parse = func(s string) (string, error) {
		s, err := text(s)
		if err == nil {
			err = live.CheckDestination(s)
		}
		return s, err
	}
	p.Allowed = "empty, unix, or unix:DIRECTORY"
	return p
}

// LiveDir returns the directory in which programs with these settings publish their live
// statistics. It returns "" if they publish none.
func LiveDir(set *config.Set) string { return live.Dir(rowStatsDest.Get(set)) }

// freshLimit bounds how long statsPage waits for all workers' new summaries. A worker that is
// late is shown with its last summary.
const freshLimit = 100 * time.Millisecond

// publishStats publishes the context's live statistics if the settings ask for it.
func (x *Context) publishStats() error {
	dir := LiveDir(x.settings)
	if dir == "" {
		return nil
	}
	x.opened = ucs.Now()
	o, err := live.Serve(dir, x.statsPage)
	if err != nil {
		return err
	}
	if why := o.FallbackReason(); why != nil {
		x.log.Sugar().Warnf("live statistics are published in %s: %v", filepath.Dir(o.Path()), why)
	}
	x.liveStats = o
	return nil
}

// statsPage returns the page that the context publishes. It runs on the goroutine of the
// live.Serve. It waits for no lock that a worker's owner holds for long.
func (x *Context) statsPage() *live.Page {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	p := &live.Page{
		Version: live.Version, PID: os.Getpid(), Command: slices.Clone(os.Args), Host: host,
		OpenSeconds: ucs.Now().Sub(x.opened).Seconds(),
		GoVersion:   runtime.Version(), MaxProcs: runtime.GOMAXPROCS(0), Goroutines: runtime.NumGoroutine(),
		Settings: []live.Setting{}, Workers: []live.Worker{},
	}
	for v := range x.settings.All() {
		if v.Origin.Kind != config.Default {
			p.Settings = append(p.Settings, live.Setting{Name: config.Prefix + v.Name, Value: v.Text, Origin: v.Origin.String()})
		}
	}
	limit := time.NewTimer(freshLimit)
	defer limit.Stop()
	var ws []*Worker // those with a display, by name
	x.mu.Lock()
	for c := range x.owned {
		if w, ok := c.(*Worker); ok && w.t.show != nil {
			ws = append(ws, w)
		}
	}
	x.mu.Unlock()
	slices.SortFunc(ws, func(a, b *Worker) int { return strings.Compare(shortID(a.t.id), shortID(b.t.id)) })
	for _, w := range ws {
		w.t.show.request(&w.t)
	}
	for _, w := range ws {
		p.Workers = append(p.Workers, w.t.show.snapshot(&w.t, limit))
	}
	return p
}

// String returns the name that UCX's tools use.
func (m ThreadMode) String() string {
	switch m {
	case ThreadMulti:
		return "multi"
	case ThreadSerialized:
		return "serialized"
	case ThreadSingle:
		return "single"
	default:
		return fmt.Sprintf("thread mode %d", uint8(m))
	}
}

// When a worker publishes a summary that no reader requested.
const (
	summaryInterval = ucs.Time(100 * time.Millisecond)
	// summaryShare limits the time spent on summaries to 1/summaryShare.
	summaryShare = 50
)

// display is a worker's part of the live statistics that the program publishes. The
// goroutine that progresses the worker publishes summaries; so does any goroutine that
// holds its lock. The context's goroutine reads them and never waits for a lock of the
// worker.
type display struct {
	mode      ThreadMode
	requested atomic.Bool   // a reader waits; pairs with doPeriodic and publishBeforeSleep
	armed     atomic.Bool   // the worker has not progressed since it last armed
	replied   chan struct{} // the owner has handled requested
	last      atomic.Pointer[summary]

	next      ucs.Time            // time of the next summary
	liveSince map[uint64]ucs.Time // requests of the last one, with the time since when they are live
}

// summary is a published summary. It is immutable.
type summary struct {
	at ucs.Time
	live.Summary
}

// publishBeforeSleep publishes a due summary before the owner sleeps or the program waits on
// EventFD, since the next pass may be late. With ThreadMulti the reader can take the lock and
// make the summary itself.
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
	o := inspector{w}
	d.last.Store(&summary{now, o.summary(d, now)})
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
	w.polling.signal()
}

// snapshot waits for the owner until limit expires, and returns the last summary.
func (d *display) snapshot(w *thread, limit *time.Timer) live.Worker {
	mode := d.mode.String()
	if w.parent != nil {
		mode = "thread of " + shortID(w.parent.id)
	}
	a := live.Worker{Name: shortID(w.id), Mode: mode, Responsive: d.wait(limit), Armed: d.armed.Load(), Counters: map[string]uint64{}}
	if d.mode == ThreadMulti && w.owner.mu.TryLock() {
		d.publish(w, ucs.Now())
		w.owner.mu.Unlock()
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

// inspector describes a thread for humans. It changes nothing.
type inspector struct{ w *thread }

// maxTold bounds the requests whose age a summary tracks.
const maxTold = 4096

// summary returns a description of the worker for humans: its endpoints, failed ones first, and
// the requests that have not completed, in groups, the oldest first. The caller is the
// worker's owner or holds its lock.
func (o *inspector) summary(d *display, now ucs.Time) live.Summary {
	w := o.w
	s := live.Summary{
		Unexpected: w.matching.unexpQueue.Len(), UnexpectedBytes: w.matching.budget.used, UnexpectedBudget: w.matching.budget.limit, AllocatedBytes: w.pool.Allocated,
		Peers: []live.Endpoint{}, Requests: []live.Requests{},
	}
	var failed, connected []uint32
	for k := range w.eps {
		e := &w.eps[k]
		if e.state == epFree {
			continue
		}
		s.Endpoints++
		switch {
		case e.state == epFailed:
			s.Failed++
			failed = append(failed, uint32(k))
		case e.lane != 0:
			s.Connected++
			if len(connected) < live.MaxRows {
				connected = append(connected, uint32(k))
			}
		}
	}
	for _, k := range failed[:min(len(failed), live.MaxRows)] {
		s.Peers = append(s.Peers, o.describeEndpoint(k))
	}
	for _, k := range connected[:min(len(connected), live.MaxRows-len(s.Peers))] {
		s.Peers = append(s.Peers, o.describeEndpoint(k))
	}

	rows := make(map[requestGroup]*live.Requests)
	seen := make(map[uint64]ucs.Time)
	for i := uint32(1); int(i) < len(w.slab.Slots); i++ {
		r := &w.slab.Slots[i]
		if r.State == request.StateDone && r.Flags&request.FlagHasResult != 0 {
			s.Unread++
		}
		// Parts are not listed, except those of a flush, which wait for different things.
		listed := r.Flags&request.FlagChild == 0
		if r.Op == request.Flush {
			listed = !listed || r.Parts == 0
		}
		if r.State != request.StateLive || !listed {
			continue
		}
		since := now
		if id := w.slab.ID(i); len(seen) < maxTold {
			if t, ok := d.liveSince[id]; ok {
				since = t
			}
			seen[id] = since
		}
		k := requestGroup{r.Op, r.EP, r.Lane, o.stateText(i)}
		row := rows[k]
		if row == nil {
			row = &live.Requests{Op: r.Op.String(), Peer: w.peerName(r.EP), Lane: w.laneName(r.Lane), State: k.state}
			rows[k] = row
		}
		row.Count++
		switch {
		case k.state == statePosted:
			row.Bytes += w.slab.room(i)
		case r.Op.Sends():
			row.Bytes += request.As[sendOp](r).length
		case r.Op.Receives():
			row.Bytes += request.As[recvOp](r).length
		case r.Op == request.Put || r.Op == request.Get:
			row.Bytes += request.As[rmaOp](r).length
		}
		if age := now.Sub(since).Seconds(); row.Count == 1 || age > row.OldestSeconds {
			row.OldestSeconds, row.Tag = age, o.tagText(i)
		}
	}
	d.liveSince = seen
	for _, r := range rows {
		s.Requests = append(s.Requests, *r)
	}
	slices.SortFunc(s.Requests, func(a, b live.Requests) int {
		return cmp.Or(cmp.Compare(b.OldestSeconds, a.OldestSeconds), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.State, b.State))
	})
	s.Requests = s.Requests[:min(len(s.Requests), live.MaxRows)]
	return s
}

func (o *inspector) describeEndpoint(k uint32) live.Endpoint {
	e := live.Endpoint{Peer: o.w.peerName(k), State: "connected", Lanes: []live.Lane{}}
	if o.w.eps[k].status != ucs.OK {
		e.State = "failed"
		if c := o.w.cold[k]; c != nil && c.err != nil {
			e.Error = c.err.Error()
		}
	}
	for n := o.w.laneOf[o.w.eps[k].peer]; n != 0; n = o.w.lanes[n].next {
		l := &o.w.lanes[n]
		row := live.Lane{Name: o.w.laneName(n), Pending: l.pending, RndvOnly: l.is(slowRndvOnly)}
		if l.err != nil {
			row.Error = l.err.Error()
		}
		e.Lanes = append(e.Lanes, row)
	}
	return e
}

// requestGroup is what the requests of one row have in common.
type requestGroup struct {
	op    request.Kind
	ep    uint32
	lane  uint32
	state string
}

// States of requests in summaries.
const (
	statePosted   = "posted"
	stateWaiting  = "waiting for room"
	stateNoCredit = "held back"
	stateMatch    = "not matched"
	stateRTS      = "announced"
	stateData     = "sending"
	stateFetching = "fetching"
	stateBehind   = "behind sends"
	stateUnderWay = "under way"
)

// stateText returns the state of the request in slot i.
func (o *inspector) stateText(i uint32) string {
	r := &o.w.slab.Slots[i]
	switch {
	case r.Flags&request.FlagPending != 0 && o.w.lanes[r.Lane].is(slowNoCredit) && r.Op.Sends():
		return stateNoCredit
	case r.Flags&request.FlagPending != 0 && o.w.lanes[r.Lane].is(slowNoCredit) && r.Op == request.Flush:
		return stateBehind
	case r.Flags&request.FlagPending != 0:
		return stateWaiting
	case r.Op == request.TagRecv && o.w.matching.posted.Has(i):
		return statePosted
	case r.Op.Receives() && request.As[recvOp](r).requested():
		return stateFetching
	case r.Op == request.Flush && request.As[flushOp](r).stage == flushBehindSends:
		return stateBehind
	case !r.Op.Sends():
		return stateUnderWay
	}
	switch request.As[sendOp](r).phase {
	case phaseMatch:
		return stateMatch
	case phaseRTS:
		return stateRTS
	case phaseData:
		return stateData
	default:
		return stateUnderWay
	}
}

// tagText returns the tag of the request in slot i, "" if it has none.
func (o *inspector) tagText(i uint32) string {
	r := &o.w.slab.Slots[i]
	switch {
	case r.Op == request.TagRecv && o.w.matching.posted.Has(i):
		tag, mask := o.w.matching.posted.Pattern(i)
		if mask != ^uint64(0) {
			return fmt.Sprintf("%#x/%#x", tag, mask)
		}
		return fmt.Sprintf("%#x", tag)
	case r.Op.Sends() && r.Op != request.AMSend:
		return fmt.Sprintf("%#x", request.As[sendOp](r).hdr)
	case r.Op == request.TagRecv:
		return fmt.Sprintf("%#x", request.As[recvOp](r).tag)
	default:
		return ""
	}
}
