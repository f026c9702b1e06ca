package ud

import (
	"math"
	"math/bits"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

const (
	never = ucs.Time(math.MaxInt64)
	// restPasses is the number of passes between two readings of the clock, a power of two.
	restPasses = 16
)

// Progress receives packets, passes messages to the handler, and runs expired timers.
//
// hot: BenchmarkAM, BenchmarkProgressIdle.
func (f *iface) Progress(budget int) int {
	if f.closed || !f.enter() {
		return 0
	}
	f.depth++
	n := 0
	if f.handed < len(f.queue) {
		n = f.hand(budget)
	}
	if n < budget {
		if k := f.recvCQ.Poll(f.wcs[:min(budget-n, pollBatch)]); k > 0 {
			f.arrived(f.wcs[:k])
			n += f.hand(budget - n)
			f.settle()
		}
	}
	f.passes++
	if f.passes&(restPasses-1) == 0 || f.more {
		n += f.rest()
	}
	f.collecting = false
	if f.nwr > 0 {
		f.flushPosts()
		f.collecting = false
	}
	f.depth--
	f.leave()
	return n
}

// hand passes about budget messages of the queue to the handler. It returns the number of
// messages and events. The end of a flow is reported in its place in the queue.
func (f *iface) hand(budget int) (n int) {
	for f.handed < len(f.queue) && n < budget {
		ds := f.queue[f.handed:]
		ds = ds[:min(len(ds), budget-n, uct.MaxBatch)]
		k, may := 0, f.most-f.kept
		for k < len(ds) && ds[k].Flags&markEnd == 0 {
			if k < may {
				ds[k].Flags = uct.DescCanRetain
			}
			k++
		}
		if k == 0 {
			f.handed++
			n += f.flowEnded(&ds[0])
			continue
		}
		ds = ds[:k]
		n += k
		f.handed += k
		kept := f.handler.HandleAM(f.rx.Mem(), ds)
		if f.closed {
			return n
		}
		for i := range ds {
			if kept>>i&1 == 0 || ds[i].Flags&uct.DescCanRetain == 0 {
				f.free = append(f.free, uint32(ds[i].Handle))
			}
		}
		f.kept += bits.OnesCount64(kept)
	}
	if f.handed == len(f.queue) {
		f.queue, f.handed = f.queue[:0], 0
	}
	f.more = f.more || f.handed < len(f.queue)
	return n
}

// tell passes the queued events to the handler and returns their number.
func (f *iface) tell() (n int) {
	for len(f.events) > 0 {
		es := f.events[:min(len(f.events), pollBatch)]
		n += len(es)
		f.handler.HandleEvents(es)
		f.events = append(f.events[:0], f.events[len(es):]...)
	}
	return n
}

// settle ends a pass that received packets: it sends urgent ACKs and posts receives.
func (f *iface) settle() {
	if len(f.urgent) > 0 {
		f.payUrgent()
	}
	if len(f.free) >= refill {
		f.repost()
	}
	if f.armed { // Without an event, only the alarm starts a section.
		f.disarm()
		f.wakeAt(ucs.Now().Add(watchdog))
	}
}

// rest does the work that not every pass needs. It returns the number of events, failures
// and retried pending operations.
//
//go:noinline
func (f *iface) rest() (n int) {
	f.more = f.handed < len(f.queue)
	if f.asleep {
		f.awake()
	}
	if len(f.free) >= refill { // the handler released retained buffers
		f.repost()
	}
	if f.passes&(restPasses-1) == 0 {
		f.clock(ucs.Now())
	}
	n += f.tell()
	for len(f.failing) > 0 {
		e := f.failing[0]
		f.failing = append(f.failing[:0], f.failing[1:]...)
		f.handler.HandleFailure(uct.Failure{Endpoint: e, Err: e.err})
		n++
	}
	if len(f.waiting) > 0 {
		f.reap()
		n += f.offerAll()
		f.more = f.more || len(f.waiting) > 0
	}
	return n
}
