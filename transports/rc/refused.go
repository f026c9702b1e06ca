package rc

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// A responder's QP that rejects a request sends one NAK and enters the error state: it
// retransmits nothing. If the NAK is lost, or the requester discards it, the requester would
// use up its retries and report a peer that does not respond. So the responder's interface sends
// a RESET with flag refused by datagram, and retransmits it until the requester acknowledges
// it. The connection fails on both sides: at the requester with ucs.ErrRemoteAccess, at the
// responder with errRefused.
//
// The responder's interface detects the error in one of two ways: by an asynchronous event of
// the device, which the async goroutine processes, or by a flushed work request of its own.

// errRefused is the error at the responder.
var errRefused = failErr("it accessed memory without permission")

// errDenied is the error at the requester.
var errDenied = fmt.Errorf("%w: the peer rejected an access", ucs.ErrRemoteAccess)

// refusals are the QPs that have rejected a request, and the RESETs that the peers have not
// acknowledged.
type refusals struct {
	mu   sync.Mutex
	qpns []verbs.QPN // of any interface of the device; guarded by mu
	some atomic.Bool // qpns is not empty
	all  []refusal
}

// refusal is a RESET with flag refused that has no ACK.
type refusal struct {
	msg   machine.Msg
	to    peer
	at    ucs.Time // next transmission
	until ucs.Time // time of the last one
}

// queuePairRefused records that a QP of the device has rejected a request. The async goroutine
// calls it, outside of owner.
func (f *iface) queuePairRefused(n verbs.QPN) {
	r := &f.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.some.Load() {
		r.some.Store(true)
		f.owner.Soon(&r.some, func() { f.section(ucs.Now(), false) })
	}
	r.qpns = append(r.qpns, n)
}

// takeRefused fails the connections whose QPs have rejected a request.
func (f *iface) takeRefused() {
	r := &f.refusals
	if !r.some.Load() {
		return
	}
	r.mu.Lock()
	qpns := r.qpns
	r.qpns = nil
	r.some.Store(false)
	r.mu.Unlock()
	for _, n := range qpns {
		if p := f.qpns.find(n); p != nil && !p.e.released {
			f.refuse(p.e)
		}
	}
}

// refuse fails e, whose QP has rejected a request, and notifies the peer.
func (f *iface) refuse(e *ep) {
	if e.dead != nil {
		return
	}
	f.failLater(e, errRefused)
	if f.armed {
		f.wake.Raise()
	}
	if e.m.Remote() != 0 {
		msg := machine.Msg{Kind: machine.MsgReset, Worker: f.worker, From: e.m.Conn(), To: e.m.Remote()}
		f.refusals.all = append(f.refusals.all, refusal{msg: msg, to: e.peer, until: ucs.Now().Add(f.connectFor)})
	}
	f.sendRefusals(ucs.Now())
}

// sendRefusals sends the RESETs whose timer has expired. It abandons each after the time limit for
// connecting.
func (f *iface) sendRefusals(now ucs.Time) {
	r := &f.refusals
	if len(r.all) == 0 {
		return
	}
	r.all = slices.DeleteFunc(r.all, func(x refusal) bool { return x.until < now })
	for i := range r.all {
		x := &r.all[i]
		if x.at <= now && !f.ud.full() {
			x.at = now.Add(f.retryEvery)
			f.sendTo(&note{msg: x.msg, refused: true}, &x.to)
		}
		f.wakeAt(max(x.at, now.Add(sectionAgain)))
	}
}

// acknowledgedRefusal ends the retransmission of the RESET that n acknowledges.
func (f *iface) acknowledgedRefusal(n *note) {
	r := &f.refusals
	r.all = slices.DeleteFunc(r.all, func(x refusal) bool {
		return x.msg.From == n.msg.To && x.msg.To == n.msg.From && x.to == n.from
	})
}

// has reports whether msg is a RESET to that interface without an ACK.
func (r *refusals) has(msg *machine.Msg, to *peer) bool {
	return slices.ContainsFunc(r.all, func(x refusal) bool { return x.msg == *msg && x.to == *to })
}

// sendTo sends a message to an interface with which there may be no connection.
func (f *iface) sendTo(n *note, to *peer) {
	if ah, err := f.pd.CreateAH(to.port.AH(f.port)); err == nil {
		f.send(n, to, ah)
		_ = ah.Close() // the posted datagram is still sent
	}
}
