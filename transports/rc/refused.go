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

// A queue pair that refuses a request sends one NAK and is in the error state: it
// retransmits nothing. Where the NAK is lost, or the peer discards it, the requester
// would use up its retries and report that the peer does not answer. So the responder's
// interface sends a CLOSE with the reason by datagram, and retransmits it until the peer
// acknowledges it. The connection fails on both sides: on the requester's with
// ucs.ErrRemoteAccess, on the responder's with errRefused.
//
// The interface learns of it by an event of the device, which the async goroutine takes,
// or by a work request of its own that the queue pair has flushed.

// errRefused is the reason on the responder's side.
var errRefused = failErr("it accessed memory that it must not, and the connection ended")

// errDenied is the reason on the requester's side.
var errDenied = fmt.Errorf("%w: the peer refused an access, and the connection ended", ucs.ErrRemoteAccess)

// refusals are the queue pairs that have refused a request, and the CLOSEs that the
// peers have not acknowledged.
type refusals struct {
	mu   sync.Mutex
	qpns []verbs.QPN // of any interface of the device; under mu
	some atomic.Bool // qpns is not empty
	all  []refusal
}

// refusal is a CLOSE that has no acknowledgement.
type refusal struct {
	msg   machine.Msg
	to    peer
	at    ucs.Time // when it is sent next
	until ucs.Time // when it is given up
}

// queuePairRefused notes that a queue pair of the device has refused a request. The
// async goroutine calls it, outside.
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

// takeRefused fails the connections whose queue pairs have refused a request.
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

// refuse fails e, whose queue pair has refused a request, and has its peer notified.
func (f *iface) refuse(e *ep) {
	if e.dead != nil {
		return
	}
	f.failLater(e, errRefused)
	if f.armed {
		f.wake.Raise()
	}
	if e.m.Remote() != 0 {
		msg := machine.Msg{Kind: machine.Gone, Worker: f.worker, From: e.m.Conn(), To: e.m.Remote()}
		f.refusals.all = append(f.refusals.all, refusal{msg: msg, to: e.peer, until: ucs.Now().Add(f.connectFor)})
	}
	f.sendRefusals(ucs.Now())
}

// sendRefusals sends the CLOSEs that are due. It drops each after the time that
// connecting may take.
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

// acknowledgedRefusal ends the retransmission of the CLOSE that n acknowledges.
func (f *iface) acknowledgedRefusal(n *note) {
	r := &f.refusals
	r.all = slices.DeleteFunc(r.all, func(x refusal) bool {
		return x.msg.From == n.msg.To && x.msg.To == n.msg.From && x.to == n.from
	})
}

// has reports whether the CLOSE msg to an interface has no acknowledgement.
func (r *refusals) has(msg *machine.Msg, to *peer) bool {
	return slices.ContainsFunc(r.all, func(x refusal) bool { return x.msg == *msg && x.to == *to })
}

// sendTo sends a message to an interface with which there may be no connection.
func (f *iface) sendTo(n *note, to *peer) {
	if ah, err := f.pd.CreateAH(to.port.AH(f.port)); err == nil {
		f.send(n, to, ah)
		_ = ah.Close() // what was posted goes out
	}
}
