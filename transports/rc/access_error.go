package rc

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// A responder's QP that rejects a request sends one NAK and enters the error state: it
// retransmits nothing. If the NAK is lost, or the requester discards it, the requester would
// use up its retries and report a peer that does not respond. So the responder's interface sends
// a RESET with flag refused by datagram, and retransmits it until the requester acknowledges
// it. The connection fails on both sides: at the requester with ucs.ErrRemoteAccess, at the
// responder with errAccessAtResponder.
//
// The responder's interface detects the error in one of two ways: by an asynchronous event of
// the device, which the async goroutine processes, or by a flushed work request of its own.

// errAccessAtResponder is the error at the responder.
var errAccessAtResponder = conn.PeerFailed("it accessed memory without permission")

// errAccessAtRequester is the error at the requester.
var errAccessAtRequester = fmt.Errorf("%w: the peer rejected an access", ucs.ErrRemoteAccess)

// accessErrors are the QPs that have rejected a request, and the RESETs that the peers have not
// acknowledged.
type accessErrors struct {
	mu      sync.Mutex
	qpns    []verbs.QPN // of any interface of the device; guarded by mu
	pending atomic.Bool // qpns is not empty
	unacked []unackedReset
}

// unackedReset is a RESET with flag refused that has no ACK.
type unackedReset struct {
	msg   machine.Msg
	to    peer
	at    ucs.Time // next transmission
	until ucs.Time // time of the last one
}

// onQPError records that a QP of the device has rejected a request. The async goroutine
// calls it, outside of owner.
func (f *iface) onQPError(n verbs.QPN) {
	r := &f.accessErrors
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.pending.Load() {
		r.pending.Store(true)
		f.RunSoon(&r.pending)
	}
	r.qpns = append(r.qpns, n)
}

// handleQPErrors fails the connections whose QPs have rejected a request.
func (f *iface) handleQPErrors() {
	r := &f.accessErrors
	if !r.pending.Load() {
		return
	}
	r.mu.Lock()
	qpns := r.qpns
	r.qpns = nil
	r.pending.Store(false)
	r.mu.Unlock()
	for _, n := range qpns {
		if p := f.qpns.find(n); p != nil && p.e.Life != conn.Released {
			f.failAccess(p.e)
		}
	}
}

// handleDeviceFailure fails all connections once the device has failed.
func (f *iface) handleDeviceFailure() {
	if !f.TakeDeviceFailure() {
		return
	}
	for _, e := range f.Slots {
		if e != nil {
			f.FailLater(e, nic.ErrDeviceFailed)
		}
	}
	if f.armed {
		f.wake.Raise()
	}
}

// failAccess fails e, whose QP has rejected a request, and notifies the peer.
func (f *iface) failAccess(e *ep) {
	if e.Life.Over() {
		return
	}
	f.FailLater(e, errAccessAtResponder)
	if f.armed {
		f.wake.Raise()
	}
	if e.M.Remote() != 0 {
		msg := machine.Msg{Kind: machine.MsgReset, Worker: f.worker, From: e.M.Conn(), To: e.M.Remote()}
		f.accessErrors.unacked = append(f.accessErrors.unacked, unackedReset{msg: msg, to: e.peer, until: ucs.Now().Add(f.connectLimit)})
	}
	f.retransmitResets(ucs.Now())
}

// retransmitResets sends the RESETs whose timer has expired. It abandons each after the time limit for
// connecting.
func (f *iface) retransmitResets(now ucs.Time) {
	r := &f.accessErrors
	if len(r.unacked) == 0 {
		return
	}
	r.unacked = slices.DeleteFunc(r.unacked, func(x unackedReset) bool { return x.until < now })
	for i := range r.unacked {
		x := &r.unacked[i]
		if x.at <= now && !f.ud.full() {
			x.at = now.Add(f.retryInterval)
			f.sendConnMsgTo(&connMsg{msg: x.msg, flags: flagAccessError}, &x.to)
		}
		f.SetAlarm(max(x.at, now.Add(sectionRetry)))
	}
}

// sendConnMsgTo sends a message to an interface with which there may be no connection.
func (f *iface) sendConnMsgTo(n *connMsg, to *peer) {
	if ah, err := f.pd.CreateAH(f.d.AH(f.port, &to.port)); err == nil {
		f.sendConnMsg(n, to, ah)
		_ = ah.Close() // the posted datagram is still sent
	}
}
