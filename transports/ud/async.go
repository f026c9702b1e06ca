package ud

import (
	"time"

	"github.com/goucx/goucx/ucs"
)

// While the program computes, the async goroutine runs sections in place of the worker; see
// nic.Section for which goroutines exclude each other.
//
// Invariant: a section calls no handler. Messages, completions and failures are queued,
// and the next Progress reports them in order. If the worker sleeps in Arm and something
// is queued, the section signals iface.wake.

// pollTimeout is the time after a reading of the clock in Progress at which the alarm runs.
// The async goroutine takes over then if the worker has stopped polling.
const pollTimeout = time.Millisecond

// sectionPackets bounds the packets that one section receives.
const sectionPackets = 128

// runSection receives packets up to a bound, sends ACKs, runs timers and polls send
// completions, without calling a handler. event reports an event of the receive CQ.
func (f *iface) runSection(now ucs.Time, event bool) {
	if event {
		f.disarm()
	}
	if f.state == ifaceClosed {
		return
	}
	f.stats.Inc(statSections)
	f.now, f.peerSearches = now, 0
	f.arm()
	more := true
	for received := 0; more && received < sectionPackets && f.canReceive(); {
		n := f.recvCQ.Poll(f.recvWCs[:pollBatch/2])
		if more = n > 0; more {
			f.processRecvs(f.recvWCs[:n])
			received += n
		}
	}
	f.updateRecvWindow()
	f.flushACKs()
	f.pollSendCQ()
	if now >= f.nextDeadline {
		f.expireTimers()
	}
	if now.Sub(f.sweptAt) > f.sweepEvery {
		f.sweep(now)
	}
	f.handleDeviceFailure()
	f.repost()
	f.flushPosts()
	f.batching = false
	if f.state == ifaceSleeping && f.hasReports() {
		f.wake.Raise()
	}
	f.CallUnattended(f.hasResumable)
	switch {
	case more && f.canReceive():
		f.SetAlarm(now.Add(pollTimeout / 10))
	default:
		f.SetAlarm(f.nextDeadline)
		if f.mux.HasReceivers() || len(f.eps) > len(f.freeEps) {
			f.SetAlarm(now.Add(f.sweepEvery))
		}
	}
}

// canReceive reports whether a section may receive more. Received messages occupy receive
// buffers until the next Progress. With an empty queue it may always receive, since the
// worker may sleep until that message arrives.
func (f *iface) canReceive() bool { return f.delivered == len(f.descs) || f.spareRecvs() > pollBatch/2 }

// hasReports reports whether the next Progress would call the handler.
func (f *iface) hasReports() bool {
	if f.delivered < len(f.descs) || len(f.events) > 0 || len(f.failures) > 0 {
		return true
	}
	for _, e := range f.waiting {
		if e.hasResources() {
			return true
		}
	}
	return false
}
