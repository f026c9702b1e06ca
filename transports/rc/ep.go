package rc

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/transports/internal/lull"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/internal/pending"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// ep is a connection with one peer, and the send handle on it once an endpoint was
// opened. It has no queue pair before its first use, nor while it sleeps.
type ep struct {
	// Sending.
	q           *queue // what operations go to: out, or one that takes none
	f           *iface
	out         *queue // of the pair that is sent in; nil: there is none
	left        *queue // of the pair that was sent in before
	status      uct.Status
	needsBuf    bool // what was refused last wanted a buffer
	hasReserved bool
	reserved    uint32 // buffer of the open reservation
	pend        pending.Queue
	waits       bool // among iface.waiting

	// Receiving.
	source  uint32
	got     uint32 // messages that came, modulo 2^32
	counted bool   // among iface.accepted

	// Connection.
	m         machine.Machine
	slot      int // in iface.eps
	peer      peer
	pairs     []*pair
	ah        verbs.AH
	heard     half // that came with the message under way
	initiated bool
	separate  bool
	opened    bool // an endpoint is open on it
	halfOpen  bool // among iface.halfOpen
	sent      bool // there was a pair to send in
	timed     bool // among iface.timed
	settles   bool // among iface.ending
	dead      error
	reported  bool
	parted    bool // the end of what the peer sends was reported
	released  bool
	cancels   uct.Token // of FlushCancel
	lastUsed  ucs.Time  // as askLives saw it
	lastHead  uint32
	lull.Activity
}

// peer is an interface as its address tells.
type peer struct {
	iface ifaceAddress
	port  nic.PortAddress
}

// errOrderly is told as no error.
var errOrderly = fmt.Errorf("%w: it closed its interface", ucs.ErrPeerFailed)

// errDisconnected is told of a connection that Disconnect ended.
var errDisconnected = failErr("this side ended the connection")

var errCanceled = fmt.Errorf("endpoint given up: %w", ucs.ErrCanceled)

// failErr wraps ErrPeerFailed around what was wrong.
func failErr(what string) error { return fmt.Errorf("%w: %s", ucs.ErrPeerFailed, what) }

// gate has operations go to the queue pair where they may.
func (e *ep) gate() {
	if e.status == ucs.OK && e.ready() && e.pend.Len() == 0 {
		e.q = e.out
		return
	}
	e.q = &e.f.nowhere
}

// ready reports whether there is a pair to send in, and what went by the one before has
// arrived: the peer has the marker then, so that no receive is held by what it cannot
// read yet, and a fence orders what is under way.
func (e *ep) ready() bool {
	return e.out != nil && (e.left == nil || e.left.head == e.left.tail)
}

// noRoom answers what cannot be posted now, and has a connection made where there
// is none.
//
//go:noinline
func (e *ep) noRoom(buf bool) uct.Status {
	e.needsBuf = buf
	if e.out == nil {
		e.want()
	}
	if e.pend.Len() == 0 {
		e.gate() // it may be ready by now
	}
	if e.status != ucs.OK {
		return e.status
	}
	return ucs.NoResource
}

// Flush ends when the operations posted before have: an acknowledged one has
// taken effect in the peer's memory.
func (e *ep) Flush(k uct.FlushKind, t uct.Token) uct.Status {
	if !e.f.enter() {
		return ucs.NoResource
	}
	defer e.f.leave()
	switch {
	case e.status != ucs.OK:
		return e.status
	case k == uct.FlushCancel:
		return e.cancel(t)
	case e.out == nil || len(e.pairs) > 1 || len(e.f.dying) > 0: // it may have left something under way
		return e.f.flush(e, t)
	case e.out.head == e.out.tail:
		return ucs.OK
	case !e.out.room():
		return ucs.NoResource
	}
	e.out.nothing(t)
	return ucs.InProgress
}

// nothing posts a write of no bytes: when it ends, all before it has.
func (q *queue) nothing(t uct.Token) {
	w := q.next()
	w.Op, w.NumSG, w.InlineLen, w.Remote, w.RKey = verbs.OpWrite, 0, 0, 0, 0
	q.take(slotToken, t, 0)
	q.post(w, verbs.SendSignaled)
}

// cancel gives the endpoint up.
func (e *ep) cancel(t uct.Token) uct.Status {
	e.f.failLater(e, errCanceled)
	for range e.f.underWay(e) {
		e.cancels = t
	}
	if e.cancels == 0 {
		return ucs.OK
	}
	return ucs.InProgress
}

// Fence has what follows wait for reads and atomics under way; all else a queue
// pair carries out in order.
func (e *ep) Fence() uct.Status {
	e.f.enterWait()
	defer e.f.leave()
	return e.fence()
}

func (e *ep) fence() uct.Status {
	if e.status == ucs.OK && e.out != nil {
		e.out.fence = e.out.reads > 0
	}
	return e.status
}

// Check writes no bytes to the peer.
func (e *ep) Check(t uct.Token) uct.Status {
	if !e.f.enter() {
		return ucs.NoResource
	}
	defer e.f.leave()
	switch {
	case e.status != ucs.OK:
		return e.status
	case e.out == nil || !e.out.room():
		return e.noRoom(false)
	}
	e.out.nothing(t)
	return ucs.InProgress
}

// Close gives the send handle up. The connection stays until the peer is done
// with its side; what was accepted is still delivered.
func (e *ep) Close() {
	e.f.enterWait()
	defer e.f.leave()
	if !e.opened {
		return
	}
	e.opened = false
	if e.released {
		return
	}
	e.pend = pending.Queue{}
	e.abort()
	if e.status == ucs.OK {
		e.shut(ucs.Closed)
	}
	if e.dead == nil && e.m.State() != machine.Idle && !e.m.PeerEnded() || e.f.isUnderWay(e) {
		e.f.count(e) // the peer may still send, and is to be told; events are to be reported
	}
	if e.dead == nil {
		e.step(machine.Event{Kind: machine.Close})
	}
	e.f.settleLater(e)
}

// shut refuses all further operations with s.
func (e *ep) shut(s uct.Status) {
	e.status = s
	e.gate()
}

// done reports whether nobody needs the connection any more.
func (e *ep) done() bool {
	if e.opened {
		return false
	}
	return e.dead != nil || e.m.State() == machine.Done || e.m.State() == machine.Idle
}

// release gives back all that the connection holds; what is under way ends with
// st.
func (e *ep) release(st uct.Status) {
	if e.released {
		return
	}
	e.released = true
	e.confirmed()
	e.closePairs(st)
	if e.ah != nil {
		_ = e.ah.Close() // nothing can be wrong with it
	}
	if e.hasReserved { // what is written there is sent nowhere
		e.abort()
	}
	e.f.forget(e)
}

func (e *ep) closePairs(st uct.Status) {
	e.out = nil
	e.gate()
	for _, p := range e.pairs {
		p.close(st)
	}
	e.pairs = nil
}

// statusOf is the status that operations end with when their connection does.
func statusOf(err error) uct.Status {
	switch {
	case errors.Is(err, ucs.ErrCanceled):
		return ucs.Canceled
	case errors.Is(err, ucs.ErrRemoteAccess):
		return ucs.RemoteAccess
	}
	return ucs.PeerFailed
}
