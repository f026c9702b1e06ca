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
// the report is an entry of iface.queue with flag markEnd, behind the source's messages.
//
// If a peer has several endpoints or sources, they are paired in the order in which they
// end. An endpoint that the peer has closed waits in peer.parting for the end of a flow
// from the peer. If no flow of that peer delivered a message, the endpoint is reported
// alone, from iface.failing.

// queueEnd queues the report of the end of flow r after its last message. The report
// includes e. If e is nil, it includes the first endpoint of peer.parting, if there is one.
func (f *iface) queueEnd(r *arq.Receiver, why uint64, e *endpoint) {
	p := f.peers[r.Peer]
	if r.Tag&counted == 0 {
		if e != nil {
			f.failing = append(f.failing, e)
			f.more = true
		}
		return
	}
	r.Tag &^= counted
	if e == nil && len(p.parting) > 0 {
		e, p.parting = p.parting[0], p.parting[1:]
	}
	if e != nil {
		if f.partners == nil {
			f.partners = map[uint32]*endpoint{}
		}
		f.partners[uint32(r.Own)] = e
	}
	f.queue = append(f.queue, uct.Desc{RxConn: uint32(r.Own), Header: why, Flags: markEnd})
	f.more = true
}

// Reasons for the end of a flow.
const (
	endInOrder uint64 = iota
	endSilent
	endDisconnected
)

var endErrs = [...]error{
	endSilent:       fmt.Errorf("%w: %v", ucs.ErrPeerFailed, arq.Silent),
	endDisconnected: fmt.Errorf("%w: this side ended the connection", ucs.ErrPeerFailed),
}

// flowEnded completes the operations that ended with the flow, then reports its end. It
// returns the number of completions plus one.
func (f *iface) flowEnded(d *uct.Desc) (n int) {
	n = f.tell() + 1
	f.came.Add(-1)
	fail := uct.Failure{RxConn: d.RxConn, Err: endErrs[d.Header]}
	if e := f.partners[d.RxConn]; e != nil {
		delete(f.partners, d.RxConn)
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
	f.enterWait()
	defer f.leave()
	r := f.mux.Receiver(arq.Flow(source))
	if f.closed || r == nil || r.Tag&counted == 0 {
		return
	}
	h := arq.ForgottenHead(r)
	f.control(f.peers[r.Peer], &h, nil)
	f.queueEnd(r, endDisconnected, nil)
	f.forgetReceiver(r)
	if f.asleep {
		f.wake.Raise()
	}
}

// failTogether has the failure of e reported together with the end of a flow from the same
// peer. It returns false if there is no such flow, or if the flow continues.
func (f *iface) failTogether(e *endpoint) bool {
	why := e.s.Reason()
	if why != arq.Closed && why != arq.Silent {
		return false
	}
	var from *arq.Receiver
	n := 0
	f.mux.EachReceiver(func(r *arq.Receiver) {
		if r.Peer == e.p.index && r.Tag&counted != 0 {
			from = r
			n++
		}
	})
	if n <= len(e.p.parting) {
		return false
	}
	if why == arq.Closed { // the End of a flow from the peer will arrive
		e.p.parting = append(e.p.parting, e)
		return true
	}
	f.queueEnd(from, endSilent, e)
	f.forgetReceiver(from)
	return true
}

// doubted reports whether an endpoint to p has an unanswered probe. If that endpoint
// fails, its report includes the flows from p.
func (p *peer) doubted() bool {
	for _, e := range p.eps {
		if e.status == ucs.OK && e.s.Asked() {
			return true
		}
	}
	return false
}

// closedBy fails an open endpoint to p, which has closed its interface: a flow from p
// ended with EndAll. It returns nil if no endpoint is open.
func (f *iface) closedBy(p *peer) *endpoint {
	if len(p.parting) > 0 {
		return nil
	}
	for _, e := range p.eps {
		if e.status != ucs.OK || !e.s.Started() {
			continue
		}
		if e.s.To() != 0 {
			f.control(p, &arq.Head{A: e.s.Farewell()}, nil) // makes p's Bye unnecessary
		}
		e.s.Fail(arq.Closed)
		e.forget()
		e.shut(ucs.PeerFailed)
		return e
	}
	return nil
}
