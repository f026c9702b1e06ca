package ud

import (
	"math/bits"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// clockPasses is the number of passes between two readings of the clock, a power of two.
const clockPasses = 16

// Progress receives packets, passes messages to the handler, and runs expired timers.
//
//hot:bench BenchmarkAM BenchmarkProgressIdle
func (f *iface) Progress(budget int) int {
	if f.closed || !f.Enter() {
		return 0
	}
	f.ProgressDepth++
	n := 0
	if f.delivered < len(f.descs) {
		n = f.deliverDescs(budget)
	}
	if n < budget {
		if k := f.recvCQ.Poll(f.recvWCs[:min(budget-n, pollBatch)]); k > 0 {
			f.processRecvs(f.recvWCs[:k])
			n += f.deliverDescs(budget - n)
			f.finishRecv()
		}
	}
	f.passes++
	if f.passes&(clockPasses-1) == 0 || f.restNeeded {
		n += f.progressSlow()
	}
	f.batching = false
	if f.numWRs > 0 {
		f.flushPosts()
		f.batching = false
	}
	f.ProgressDepth--
	f.Leave()
	return n
}

// deliverDescs passes about budget messages of the queue to the handler. It returns the number of
// messages and events. The end of a flow is reported in its place in the queue.
func (f *iface) deliverDescs(budget int) (n int) {
	for f.delivered < len(f.descs) && n < budget {
		ds := f.descs[f.delivered:]
		ds = ds[:min(len(ds), budget-n, uct.MaxBatch)]
		k, canRetain := 0, f.maxRetained-f.retained
		for k < len(ds) && ds[k].Flags&descRxEnd == 0 {
			if k < canRetain {
				ds[k].Flags = uct.DescCanRetain
			}
			k++
		}
		if k == 0 {
			f.delivered++
			n += f.reportRxEnd(&ds[0])
			continue
		}
		ds = ds[:k]
		n += k
		f.delivered += k
		kept := f.handler.HandleAM(f.rx.Mem(), ds)
		if f.closed {
			return n
		}
		for i := range ds {
			if kept>>i&1 == 0 || ds[i].Flags&uct.DescCanRetain == 0 {
				f.freeRecvs = append(f.freeRecvs, uint32(ds[i].Handle))
			}
		}
		f.retained += bits.OnesCount64(kept)
	}
	if f.delivered == len(f.descs) {
		f.descs, f.delivered = f.descs[:0], 0
	}
	f.restNeeded = f.restNeeded || f.delivered < len(f.descs)
	return n
}

// deliverEvents passes the queued events to the handler and returns their number.
func (f *iface) deliverEvents() (n int) {
	for len(f.events) > 0 {
		es := f.events[:min(len(f.events), pollBatch)]
		n += len(es)
		f.handler.HandleEvents(es)
		f.events = append(f.events[:0], f.events[len(es):]...)
	}
	return n
}

// finishRecv ends a pass that received packets: it sends urgent ACKs and posts receives.
func (f *iface) finishRecv() {
	if len(f.urgentACKs) > 0 {
		f.flushUrgentACKs()
	}
	if len(f.freeRecvs) >= refillBatch {
		f.repost()
	}
	if f.armed { // Without an event, only the alarm starts a section.
		f.disarm()
		f.SetAlarm(ucs.Now().Add(pollTimeout))
	}
}

// progressSlow does the work that not every pass needs. It returns the number of events, failures
// and retried pending operations.
//
//go:noinline
func (f *iface) progressSlow() (n int) {
	f.restNeeded = f.delivered < len(f.descs)
	if f.sleeping {
		f.endSleep()
	}
	if len(f.freeRecvs) >= refillBatch { // the handler released retained buffers
		f.repost()
	}
	if f.passes&(clockPasses-1) == 0 {
		f.serviceTimers(ucs.Now())
	}
	n += f.deliverEvents()
	for len(f.failures) > 0 {
		e := f.failures[0]
		f.failures = append(f.failures[:0], f.failures[1:]...)
		f.handler.HandleFailure(uct.Failure{Endpoint: e, Err: e.err})
		n++
	}
	if len(f.waiting) > 0 {
		f.pollSendCQ()
		n += f.dispatchPending()
		f.restNeeded = f.restNeeded || len(f.waiting) > 0
	}
	return n
}
