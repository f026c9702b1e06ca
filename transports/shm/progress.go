package shm

import (
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/uct"
)

// servicePasses is the maximum number of passes between two polls of the sockets, see ucs.Pace. It amounts to 15-25 µs of
// a loop that spins. A poll is a system call: one per 1,024 passes took 4 % of an 8-byte latency. A poll delays a message
// that arrives meanwhile. So while some messages arrive, fewer than busyMessages between two polls, only one poll in
// busyPolls is done. Without messages, and puts are none, one is done in idlePoll, unless a connection is being made.
const (
	servicePasses = 2048
	busyMessages  = 128
	busyPolls     = 16
	idlePoll      = 100 * time.Microsecond
)

// hitPasses is the number of passes without a message that take as long as one with a message.
const hitPasses = 4

// stalePasses is the number of passes without a message after which a hot connection
// may be demoted in favour of another.
const stalePasses = 4096

// drainBatch is the maximum number of messages that a pass takes from one connection.
// UCX's mm transport has the same limit. A larger batch would overrun a window of posted
// receives, and messages would become unexpected.
const drainBatch = 16

// prefetchAfter is the number of full batches in a row after which the next cells are prefetched. A receiver that is right
// behind its sender would take the lines that the sender is about to write: 8-byte active messages go at 18 M/s
// with a prefetch after each full batch, at 38 M/s with this rule, and at 37 M/s without any; tag messages at 39, 39 and 31.
const prefetchAfter = 256

// Progress polls the cells of the hot connections and four doorbell words of the
// others. A single short message from the only hot connection, the most frequent case, is
// received here: it takes no loop and one call.
//
//hot:bench BenchmarkProgressIdle
//go:nosplit
func (f *iface) Progress(budget int) int {
	e := f.only
	if e == nil {
		return f.pollSeveral(budget)
	}
	rx := &e.rx
	at := rx.Position // one copy: an atomic load ends the use of earlier loads
	first, more := at.Poll()
	if !more {
		f.left -= int32(f.word.Passes)
		f.word.Passes = 0
		return f.idlePass(budget)
	}
	header, off, n, next := at.Short(first)
	if n > ring.InlineMax || next.Ready() {
		return f.hotHit(budget)
	}
	d := &f.ds[0]
	d.Off, d.Len, d.Header, d.RxConn = off, n, header, e.Source
	d.ID = uct.AMID(ring.ID(first)) % uct.NumAMIDs
	f.progressDepth++
	rx.Seek(next)
	f.handler.HandleAM(rx.Data(), f.ds[:1])
	switch {
	case rx.MustRelease(), rx.ProducerWaits():
		if rx.ReleaseNow() {
			e.roomFreed()
		}
	}
	f.progressDepth--
	if f.left -= hitPasses; f.left <= 0 {
		return 1 + f.slowPass()
	}
	return 1
}

// pollSeveral is Progress unless there is only one ring to poll.
//
//go:noinline
func (f *iface) pollSeveral(budget int) int {
	if f.mail.ep != nil {
		return f.mailPass(budget)
	}
	for _, e := range f.hot {
		if e.rx.Ready() {
			return f.hotHit(budget)
		}
	}
	return f.idlePass(budget)
}

// idlePass counts a pass that has found no message in the hot connections.
func (f *iface) idlePass(budget int) int {
	if f.left--; f.left <= 0 {
		return f.passMore(budget)
	}
	return 0
}

var alwaysReady = ring.AlwaysReady()

// PollWord implements uct.WordPoller. Only one ring can be polled without a call, and only while a
// pass has nothing else to do.
func (f *iface) PollWord() *uct.PollWord { return &f.word }

// needPass makes the next pass call Progress, which does extra work.
func (f *iface) needPass() { f.workAt, f.left, f.word.Next = f.passes(), 0, alwaysReady }

// passes returns the number of passes so far.
func (f *iface) passes() uint32 { return f.workAt - uint32(f.left) }

// endExtraWork ends a pass with extra work: it determines when the next is due, and the poll word.
func (f *iface) endExtraWork() {
	f.needPass()
	now := f.passes()
	if f.serviceNeeded || len(f.waiting)|len(f.fetching)|len(f.exposing)|len(f.doorbells)|f.recheck.Len() != 0 {
		return
	}
	f.workAt = f.servedAt + f.pace.Passes()
	f.left = int32(f.workAt - now)
	if f.only != nil {
		f.word.Next = &f.only.rx.Position
	}
}

// passMore polls doorbell words and does the periodic work of a pass.
//
//go:noinline
func (f *iface) passMore(budget int) int {
	if c := f.nextDoorbell; c+doorbellStride <= len(f.doorbells) && c+doorbellStride <= len(f.lastDoorbells) {
		h, seen := (*[doorbellStride]uint64)(f.doorbells[c:]), (*[doorbellStride]uint64)(f.lastDoorbells[c:])
		if atomic.LoadUint64(&h[0])^seen[0]|atomic.LoadUint64(&h[1])^seen[1]|
			atomic.LoadUint64(&h[2])^seen[2]|atomic.LoadUint64(&h[3])^seen[3] != 0 {
			return f.doorbellHit(budget)
		}
		f.nextDoorbell = c + doorbellStride
	} else {
		f.nextDoorbell = 0
	}
	if f.passes()-f.servedAt >= f.pace.Passes() || f.serviceNeeded || len(f.waiting)|len(f.fetching)|len(f.exposing)|f.recheck.Len() != 0 {
		return f.slowPass()
	}
	f.endExtraWork()
	return 0
}

// hotHit drains the hot connections.
//
//go:noinline
//go:nosplit
func (f *iface) hotHit(budget int) int {
	f.enter()
	var n int
	if len(f.hot) == 1 {
		n = f.drain(f.hot[0], budget)
	} else {
		n = f.drainHot(budget)
	}
	return n + f.leave()
}

// drainHot begins with the next connection in each call, and takes at most a batch of each. It then polls a doorbell
// word per message that it has delivered: so connections that are not hot have their turn as often as
// the hot ones, however busy these are.
func (f *iface) drainHot(budget int) int {
	n := 0
	if f.nextHot++; f.nextHot >= len(f.hot) {
		f.nextHot = 0
	}
	for i := range f.hot {
		j := f.nextHot + i
		if j >= len(f.hot) {
			j -= len(f.hot)
		}
		if j < len(f.hot) && f.hot[j].rx.Ready() {
			n += f.drain(f.hot[j], budget)
		}
	}
	if len(f.doorbells) != 0 {
		c, words := f.nextDoorbell, (n+doorbellStride-1)/doorbellStride*doorbellStride
		if c >= len(f.doorbells) {
			c = 0
		}
		f.nextDoorbell = c + words
		n += f.drainDoorbells(c, words, budget)
	}
	return n
}

// doorbellHit drains the connections whose doorbell words have changed.
//
//go:noinline
func (f *iface) doorbellHit(budget int) int {
	f.enter()
	c := f.nextDoorbell
	f.nextDoorbell = c + doorbellStride // the next pass polls the next words, however busy these are
	n := f.drainDoorbells(c, doorbellStride, budget)
	return n + f.leave()
}

// enter begins a section of callbacks and leave ends it.
func (f *iface) enter() {
	if f.state == armed {
		f.disarm()
	}
	f.progressDepth++
}

// leave counts the pass. A worker that always finds messages thus still services its
// sockets.
func (f *iface) leave() int {
	f.progressDepth--
	if f.left -= hitPasses; f.left <= 0 {
		return f.slowPass() // does nothing if only doorbell words are left to poll
	}
	return 0
}

// slowPass does the periodic work of passes: pending operations, copies, service, and connections that are neither
// hot nor have a new doorbell.
//
//go:noinline
func (f *iface) slowPass() int {
	if f.state == closed {
		return 0
	}
	f.progressDepth++
	n := 0
	if len(f.waiting) != 0 {
		n = f.dispatchPending()
	}
	if len(f.fetching) != 0 {
		n += f.continueFetches()
	}
	if len(f.exposing) != 0 {
		n += f.help()
	}
	if f.passes()-f.servedAt >= f.pace.Passes() {
		f.servedAt = f.passes()
		if now := ucs.Now(); f.pace.Due(now, servicePasses) || f.polledAt == 0 {
			f.serviceNeeded = f.pollIsDue(now) || f.serviceNeeded
		}
	}
	if f.serviceNeeded {
		n += f.service()
	}
	if f.recheck.Len() != 0 {
		for e := range f.recheck.Drain() {
			n += f.drainCold(e, drainBatch)
			if !e.Has(inRecheck) && !e.hot && e.Life != conn.Released && f.passes()-e.demotedAt < recheckPasses {
				f.recheck.Add(e)
			}
		}
	}
	f.endExtraWork()
	f.progressDepth--
	return n
}

// pollIsDue reports whether to poll the sockets now.
func (f *iface) pollIsDue(now ucs.Time) bool {
	received := uint64(0)
	for _, e := range f.hot {
		received += e.rx.Consumed()
	}
	k := received - f.received
	f.received = received
	if k == 0 {
		return now.Sub(f.polledAt) >= idlePoll || len(f.connecting)+len(f.halfOpen) > 0
	}
	f.skippedPolls++
	return k >= busyMessages || f.skippedPolls >= busyPolls
}

// drain delivers at most budget messages of e to the handler as one batch.
//
//go:noinline
//go:nosplit
func (f *iface) drain(e *ep, budget int) int {
	rx, at, k := &e.rx, e.rx.Position, 0
	ds := f.ds[:max(1, min(budget, drainBatch))]
	for k < len(ds) {
		first, more := at.Poll()
		if !more {
			break
		}
		d := &ds[k]
		off, n, ok := at.Inline(first)
		if !ok {
			rx.Seek(at)
			if off, n, ok = rx.Bulk(first); !ok {
				if k == 0 { // otherwise the messages before it are delivered first
					f.followMarker(e, first)
					return 0
				}
				break
			}
		}
		d.Off, d.Len, d.Header = off, n, at.Header()
		d.ID, d.RxConn = uct.AMID(ring.ID(first))%uct.NumAMIDs, e.Source
		at = at.Next()
		k++
	}
	if k == 0 {
		return 0
	}
	rx.Seek(at)
	if k < drainBatch {
		e.fullBatches = 0
	} else if e.fullBatches++; e.fullBatches > prefetchAfter {
		rx.Prefetch(drainBatch)
	}
	e.lastHit = f.passes()
	f.handler.HandleAM(rx.Data(), ds[:k])
	if rx.Release() {
		e.roomFreed()
	}
	return k
}

// roomFreed wakes a peer that waits for room.
//
//go:noinline
func (e *ep) roomFreed() {
	if e.needsBarrier {
		e.Barrier()
	}
	e.wakePeer()
}
