package ud

import (
	"fmt"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// A peer that closes or falls silent ends an endpoint to it and a flow from it. They
// are reported together, once, after the last message: as the connection that they
// are to the layer above. Where there are several of one kind, they go in pairs.

// queueEnd has the end of a flow reported after its last message, and with it that
// of e; nil: of an endpoint that waits for that, if one does.
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
	f.queue = append(f.queue, uct.Desc{Source: uint32(r.Own), Header: why, Flags: markEnd})
	f.more = true
}

// Why a flow ended.
const (
	endInOrder uint64 = iota
	endSilent
	endDisconnected
)

var endErrs = [...]error{
	endSilent:       fmt.Errorf("%w: %v", ucs.ErrPeerFailed, arq.Silent),
	endDisconnected: fmt.Errorf("%w: this side ended the connection", ucs.ErrPeerFailed),
}

// flowEnded reports it, after the operations that ended with it, and returns their
// number and one more.
func (f *iface) flowEnded(d *uct.Desc) (n int) {
	n = f.tell() + 1
	f.came.Add(-1)
	fail := uct.Failure{Source: d.Source, Err: endErrs[d.Header]}
	if e := f.partners[d.Source]; e != nil {
		delete(f.partners, d.Source)
		if e.status == ucs.PeerFailed { // else it was closed meanwhile
			fail.Endpoint = e
		}
	}
	f.handler.HandleFailure(fail)
	return n
}

// Disconnect: see uct.Iface. The sender hears it at once; where that is lost, with the
// answer to what it sends next.
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

// failTogether has the failure of e reported with the end of a flow from the same
// peer; false: there is none, or that goes on.
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
	if why == arq.Closed { // its end is on its way
		e.p.parting = append(e.p.parting, e)
		return true
	}
	f.queueEnd(from, endSilent, e)
	f.forgetReceiver(from)
	return true
}

// doubted reports whether an endpoint to p waits for a sign of life: its failure will
// tell of the flows from p too.
func (p *peer) doubted() bool {
	for _, e := range p.eps {
		if e.status == ucs.OK && e.s.Asked() {
			return true
		}
	}
	return false
}

// closedBy ends an endpoint to p, which closes and has sent the end of a flow; nil:
// none is open.
func (f *iface) closedBy(p *peer) *endpoint {
	if len(p.parting) > 0 {
		return nil
	}
	for _, e := range p.eps {
		if e.status != ucs.OK || !e.s.Started() {
			continue
		}
		if e.s.To() != 0 {
			f.control(p, &arq.Head{A: e.s.Farewell()}, nil) // p need not say bye
		}
		e.s.Fail(arq.Closed)
		e.forget()
		e.shut(ucs.PeerFailed)
		return e
	}
	return nil
}
