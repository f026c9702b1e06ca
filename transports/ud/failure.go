package ud

import (
	"fmt"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// When a peer closes or stops answering, the endpoints to it and the flows from it fail.
// The layer above sees an endpoint and a source as one connection.
//
// Invariant: when a peer closes its interface or stops responding, an endpoint and a source
// are reported once, in one uct.Failure. This happens after the last message of the source:
// the report is an entry of iface.descs with flag descRxEnd, behind the source's messages.
//
// If a peer has several endpoints or sources, they are paired in the order in which they
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
)

var endErrs = [...]error{
	endTimedOut:     fmt.Errorf("%w: %v", ucs.ErrPeerFailed, arq.TimedOut),
	endDisconnected: fmt.Errorf("%w: this side ended the connection", ucs.ErrPeerFailed),
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
			fail.Endpoint = e
		}
	}
	f.handler.HandleFailure(fail)
	return n
}

// Disconnect: see uct.Iface. It sends Unknown to the flow's sender at once. If that is
// lost, the reply to the sender's next packet is Unknown too.
func (f *iface) Disconnect(source uint32) {
	f.EnterWait()
	defer f.Leave()
	r := f.mux.Receiver(arq.Flow(source))
	if f.closed || r == nil || r.Tag&reported == 0 {
		return
	}
	h := arq.ResetFlowHeader(r)
	f.sendControl(f.peers[r.Peer], &h, nil)
	f.queueRxEnd(r, endDisconnected, nil)
	f.removeReceiver(r)
	if f.sleeping {
		f.wake.Raise()
	}
}

// pairFailure has the failure of e reported together with the end of a flow from the same
// peer. It returns false if there is no such flow, or if the flow continues.
func (f *iface) pairFailure(e *endpoint) bool {
	why := e.s.Reason()
	if why != arq.Closed && why != arq.TimedOut {
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
	f.queueRxEnd(rx, endTimedOut, e)
	f.removeReceiver(rx)
	return true
}

// hasPendingProbe reports whether an endpoint to p has an unanswered probe. If that endpoint
// fails, its report includes the flows from p.
func (p *peer) hasPendingProbe() bool {
	for _, e := range p.eps {
		if e.status == ucs.OK && e.s.ProbePending() {
			return true
		}
	}
	return false
}

// failClosedByPeer fails an open endpoint to p, which has closed its interface: a flow from p
// ended with EndAll. It returns nil if no endpoint is open.
func (f *iface) failClosedByPeer(p *peer) *endpoint {
	if len(p.closedEPs) > 0 {
		return nil
	}
	for _, e := range p.eps {
		if e.status != ucs.OK || !e.s.Started() {
			continue
		}
		if e.s.To() != 0 {
			f.sendControl(p, &arq.Header{A: e.s.CloseCompleteWord()}, nil) // makes p's Bye unnecessary
		}
		e.s.Fail(arq.Closed)
		e.unregister()
		e.rejectOps(ucs.PeerFailed)
		return e
	}
	return nil
}
