package ud

import (
	"slices"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
)

// addUnacked adds e to iface.unacked, where expireTimers services it, and sets the alarm.
func (e *endpoint) addUnacked(deadline ucs.Time) {
	f := e.f
	if !e.inUnacked {
		e.inUnacked = true
		f.unacked = append(f.unacked, e)
	}
	f.nextDeadline = min(f.nextDeadline, deadline)
	f.SetAlarm(f.nextDeadline)
}

// setTimer services e at the deadline of its flow.
func (e *endpoint) setTimer() { e.addUnacked(e.s.Deadline()) }

// expireTimers services the endpoints in iface.unacked and sets iface.nextDeadline.
func (f *iface) expireTimers() {
	due := nic.Never
	for i := 0; i < len(f.unacked); {
		e := f.unacked[i]
		f.expireTimer(e)
		if e.state == epDetached || e.s.Quiescent() {
			last := len(f.unacked) - 1
			f.unacked[i], f.unacked[last] = f.unacked[last], nil
			f.unacked = f.unacked[:last]
			e.inUnacked = false
			continue
		}
		due = min(due, e.s.Deadline())
		i++
	}
	f.nextDeadline = due
}

// expireTimer runs the expired timer of a flow.
func (f *iface) expireTimer(e *endpoint) {
	switch act := e.s.Tick(f.now); act {
	case arq.Nothing:
	case arq.SendConnect:
		h := f.mux.ConnectHeader(e.flow, e.p.addr.name)
		h.B = versionWord(0)
		f.bodyBuf = f.self.appendBody(f.bodyBuf[:0])
		f.sendControl(e.p, &h, f.bodyBuf)
	case arq.SendProbe:
		f.sendControl(e.p, &arq.Header{A: e.s.ProbeWord()}, nil)
	case arq.ResendOldest:
		f.stats.Inc(statTimeouts)
		slot, a := e.s.RetransmitOldest(f.now)
		e.transmit(slot, a)
	case arq.FlowFailed:
		e.handleState()
		return
	}
	e.transmitReady()
}

// sweep services all flows. Idle senders probe their peer when keepalive is due. Receivers
// whose sender has been silent too long are removed. Where an endpoint to that sender has an
// unanswered probe, its failure will include the receiver, which is kept until then.
func (f *iface) sweep(now ucs.Time) {
	f.sweptAt = now
	for _, e := range f.eps {
		if e == nil || e.inUnacked || !e.s.Started() {
			continue
		}
		if f.expireTimer(e); e.state != epDetached && !e.s.Quiescent() {
			e.setTimer()
		}
	}
	f.activeRx = 0
	f.timedOutRx = f.timedOutRx[:0]
	probing := func(e *endpoint) bool { return e.status == ucs.OK && e.s.ProbePending() }
	f.mux.EachReceiver(func(r *arq.Receiver) {
		if r.Tag&recvActive != 0 {
			f.activeRx++
			r.Tag &^= recvActive
		}
		if r.Tick(now) && !slices.ContainsFunc(f.peers[r.Peer].eps, probing) {
			f.timedOutRx = append(f.timedOutRx, r)
		}
	})
	for i, r := range f.timedOutRx {
		f.queueRxEnd(r, endTimedOut, nil)
		f.removeReceiver(r)
		f.timedOutRx[i] = nil
	}
}
