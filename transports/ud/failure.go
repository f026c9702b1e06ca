package ud

import (
	"fmt"
	"slices"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
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
