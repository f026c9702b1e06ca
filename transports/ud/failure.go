package ud

import (
	"fmt"
	"slices"
	"time"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// When a peer closes or stops responding, the endpoints to it and the flows from it fail.
// The layer above sees an endpoint and a received flow as one connection.
//
// Invariant: when a peer closes its interface or stops responding, an endpoint and a received
// flow are reported once, in one uct.Failure. This happens after the last message of the flow:
// the report is an entry of iface.descs with flag descRxEnd, behind the flow's messages.
//
// If a peer has several endpoints or flows, they are paired in the order in which they
// end. An endpoint that the peer has closed waits in peer.closedEPs for the end of a flow
// from the peer. If no flow of that peer delivered a message, the endpoint is reported
// alone, from iface.failures.

// queueRxEnd queues the report of the end of flow r after its last message. The report
// includes e. If e is nil, it includes the first endpoint of peer.closedEPs, if there is one.
func (f *iface) queueRxEnd(r *arq.Receiver, why uint64, e *endpoint) {
	p := f.peers[r.Peer]
	if r.Tag&reported == 0 {
		if e != nil {
			f.failures = append(f.failures, e)
			f.restNeeded = true
		}
		return
	}
	r.Tag &^= reported
	if e == nil && len(p.closedEPs) > 0 {
		e, p.closedEPs = p.closedEPs[0], p.closedEPs[1:]
	}
	if e != nil {
		if f.pairedEPs == nil {
			f.pairedEPs = map[uint32]*endpoint{}
		}
		f.pairedEPs[uint32(r.Local)] = e
	}
	f.descs = append(f.descs, uct.Desc{RxConn: uint32(r.Local), Header: why, Flags: descRxEnd})
	f.restNeeded = true
}

// Reasons for the end of a flow.
const (
	endInOrder uint64 = iota
	endTimedOut
	endDisconnected
	endPortClosed
	endQPClosed
	endDeviceFailed
)

var endErrs = [...]error{
	endTimedOut:     fmt.Errorf("%w: %v", ucs.ErrPeerFailed, arq.TimedOut),
	endDisconnected: fmt.Errorf("%w: this side ended the connection", ucs.ErrPeerFailed),
	endPortClosed:   fmt.Errorf("%w: %v", ucs.ErrPeerFailed, arq.PortClosed),
	endQPClosed:     fmt.Errorf("%w: %v", ucs.ErrPeerFailed, arq.QPClosed),
	endDeviceFailed: nic.ErrDeviceFailed,
}

// reportRxEnd completes the operations that ended with the flow, then reports its end. It
// returns the number of completions plus one.
func (f *iface) reportRxEnd(d *uct.Desc) (n int) {
	n = f.deliverEvents() + 1
	f.rxConns.Add(-1)
	fail := uct.Failure{RxConn: d.RxConn, Err: endErrs[d.Header]}
	if e := f.pairedEPs[d.RxConn]; e != nil {
		delete(f.pairedEPs, d.RxConn)
		if e.status == ucs.PeerFailed { // else it was closed since
			fail.Endpoint, fail.Acked = e, fail.Err == nil && !e.lostOps
		}
	}
	f.handler.HandleFailure(fail)
	return n
}

// Disconnect: see uct.Iface. It sends Reset to the flow's sender at once. If that is
// lost, the reply to the sender's next packet is Reset too.
func (f *iface) Disconnect(rxConn uint32) {
	f.EnterWait()
	defer f.Leave()
	r := f.mux.Receiver(arq.Flow(rxConn))
	if f.state == ifaceClosed || r == nil || r.Tag&reported == 0 {
		return
	}
	h := arq.ResetFlowHeader(r)
	f.sendControl(f.peers[r.Peer], &h, nil)
	f.queueRxEnd(r, endDisconnected, nil)
	f.removeReceiver(r)
	if f.state == ifaceSleeping {
		f.wake.Raise()
	}
}

// pairFailure has the failure of e reported together with the end of a flow from the same
// peer. It returns false if there is no such flow, or if the flow continues.
func (f *iface) pairFailure(e *endpoint) bool {
	why := e.s.Reason()
	end, paired := map[arq.Reason]uint64{
		arq.Closed: endInOrder, arq.TimedOut: endTimedOut, arq.PortClosed: endPortClosed, arq.QPClosed: endQPClosed,
		arq.DeviceFailed: endDeviceFailed,
	}[why]
	if !paired {
		return false
	}
	var rx *arq.Receiver
	n := 0
	f.mux.EachReceiver(func(r *arq.Receiver) {
		if r.Peer == e.p.index && r.Tag&reported != 0 {
			rx = r
			n++
		}
	})
	if n <= len(e.p.closedEPs) {
		return false
	}
	if why == arq.Closed { // the End of a flow from the peer will arrive
		e.p.closedEPs = append(e.p.closedEPs, e)
		return true
	}
	f.queueRxEnd(rx, end, e)
	f.removeReceiver(rx)
	return true
}

// CheckPeers implements uct.PeerChecker.
func (f *iface) CheckPeers() time.Duration {
	if f.state == ifaceClosed || !f.d.ChecksPeers() {
		return 0
	}
	f.EnterWait()
	defer f.Leave()
	now := ucs.Now()
	return f.peerChecks.Within(now, f.checkPeers(now))
}

// checkPeers has the device probe the peers that have been silent while something waits for them.
// It fails the flows to and from those that are gone. It reports whether the check was due.
func (f *iface) checkPeers(now ucs.Time) bool {
	if !f.d.ChecksPeers() || !f.peerChecks.Start(now, len(f.eps)+f.ActiveEndpoints()) {
		return false
	}
	for _, p := range f.peers {
		if p == nil {
			continue
		}
		p.awaited = false
		for _, e := range p.eps {
			p.silence.Received(e.s.LastReply())
			p.awaited = p.awaited || e.s.Started() && (!e.s.Idle() || e.s.State() == arq.Opening) || e.pend.Len() > 0
		}
	}
	f.mux.EachReceiver(func(r *arq.Receiver) {
		f.peers[r.Peer].silence.Received(r.LastRecv())
	})
	if w, ok := f.handler.(uct.WaitReporter); ok {
		w.ReportWaits(uct.WaitForClose, func(ep uct.Endpoint, rxConn uint32, _ uct.WaitKind) {
			if e, ok := ep.(*endpoint); ok {
				e.p.awaited = true
			} else if r := f.mux.Receiver(arq.Flow(rxConn)); r != nil {
				f.peers[r.Peer].awaited = true
			}
		})
	}
	for _, p := range f.peers {
		if p == nil || !p.silence.Over(&f.peerChecks, now, p.awaited) {
			continue
		}
		switch f.d.PeerState(f.port, &p.addr.Port, p.addr.QPN, &p.silence) {
		case verbs.PeerUnknown:
		case verbs.PeerPortClosed:
			f.failPeer(p, arq.PortClosed, endPortClosed)
		case verbs.PeerQPClosed:
			f.failPeer(p, arq.QPClosed, endQPClosed)
		}
	}
	return true
}

// handleDeviceFailure fails all flows once the device has failed.
func (f *iface) handleDeviceFailure() {
	if !f.TakeDeviceFailure() {
		return
	}
	for _, p := range f.peers {
		if p != nil {
			f.failPeer(p, arq.DeviceFailed, endDeviceFailed)
		}
	}
}

// failPeer fails all flows to and from a peer.
func (f *iface) failPeer(p *peer, why arq.Reason, end uint64) {
	for _, e := range slices.Clone(p.eps) {
		e.s.Fail(why)
		e.handleState()
	}
	var rest []*arq.Receiver
	f.mux.EachReceiver(func(r *arq.Receiver) {
		if f.peers[r.Peer] == p {
			rest = append(rest, r)
		}
	})
	for _, r := range rest {
		f.queueRxEnd(r, end, nil)
		f.removeReceiver(r)
	}
}

// receiveEnd processes the End of flow r, which has delivered everything before it. If the peer
// closes its interface, an open endpoint to it fails too, and both are reported together.
//
//go:noinline
func (f *iface) receiveEnd(r *arq.Receiver, h *arq.Header) {
	p := f.peers[r.Peer]
	var closed *endpoint
	if h.ID() == arq.EndAll && len(p.closedEPs) == 0 {
		open := func(e *endpoint) bool { return e.status == ucs.OK && e.s.Started() }
		if i := slices.IndexFunc(p.eps, open); i >= 0 {
			closed = p.eps[i]
			if closed.s.To() != 0 {
				f.sendControl(p, &arq.Header{A: closed.s.CloseCompleteWord()}, nil) // makes the peer's Close unnecessary
			}
			closed.s.Fail(arq.Closed)
			closed.lostOps = closed.s.HasUnacked()
			closed.detach()
			closed.rejectOps(ucs.PeerFailed)
		}
	}
	f.queueRxEnd(r, endInOrder, closed)
	r.End()
}
