package rc

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/internal/pending"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// ep is a connection with a peer, and the endpoint on it while one is open. It has no QP before
// its first use, nor while it is suspended.
type ep struct {
	// Sending.
	q           *sendQueue // where operations are posted: ep.txQueue, or iface.nullQueue, which has no room
	f           *iface
	txQueue     *sendQueue // of the QP that this side sends in; nil: none
	oldTxQueue  *sendQueue // of the QP that this side sent in before
	status      uct.Status
	needsBuf    bool // the last operation that got NoResource needed a bounce buffer
	hasReserved bool
	reserved    uint32 // buffer of the open reservation
	pend        pending.Queue

	// Receiving.
	received uint32 // messages received, modulo 2^32
	conn.Conn

	// Connection.
	peer         peer
	qps          []*connQP
	ah           verbs.AH
	remoteQP     qpInfo    // QP of the peer, from the message being processed
	cancelToken  uct.Token // token of FlushCancel
	ackDeadline  ucs.Time  // see awaitACKs; 0: not waiting
	lastProgress ucs.Time  // when sendKeepalives saw progress last
	lastHead     uint32
	lastUses     uint32 // of what completes and arrives, as the last checkPeers found
	silence      nic.Silence
}

// Facts of rc beside those of all connections.
const (
	inWaiting     = conn.Own << iota // in iface.waiting
	inTimers                         // in iface.timers
	everConnected                    // the connection has had a QP to send in
)

// peer is a remote interface, decoded from its address.
type peer struct {
	iface ifaceAddress
	port  nic.PortAddress
}

var errCanceled = fmt.Errorf("endpoint canceled by a flush: %w", ucs.ErrCanceled)

// updateFastPath sets q: to the send queue if operations may be posted, else to one without room.
func (e *ep) updateFastPath() {
	if e.status == ucs.OK && e.txReady() && e.pend.Len() == 0 {
		e.q = e.txQueue
		return
	}
	e.q = &e.f.nullQueue
}

// txReady reports whether operations may be posted to ep.txQueue.
//
// While the peer has not acknowledged all packets of the previous QP, it may not have received
// the switch-over marker. Its receives would then fill with messages that it cannot deliver
// yet. Also, a fence in the new QP would not order operations of the previous one. So nothing is
// posted until the previous QP has no operation in flight.
func (e *ep) txReady() bool {
	return e.txQueue != nil && (e.oldTxQueue == nil || e.oldTxQueue.head == e.oldTxQueue.tail)
}

// noResource returns the status of an operation that cannot be posted now. It opens or resumes a
// connection that has no QP.
//
//go:noinline
func (e *ep) noResource(buf bool) uct.Status {
	e.needsBuf = buf
	if e.txQueue == nil {
		e.ensureConnected()
	}
	if e.pend.Len() == 0 {
		e.updateFastPath() // operations may be possible since the last call
	}
	if e.status != ucs.OK {
		return e.status
	}
	return ucs.NoResource
}

// Flush completes when the operations posted before it have completed. A completed put has
// taken effect in the peer's memory.
func (e *ep) Flush(k uct.FlushKind, t uct.Token) uct.Status {
	if !e.f.Enter() {
		return ucs.NoResource
	}
	defer e.f.Leave()
	switch {
	case e.status != ucs.OK:
		return e.status
	case k == uct.FlushCancel:
		// The endpoint fails. t completes when no operation is in flight.
		e.f.FailLater(e, errCanceled)
		for range e.f.inFlight(e) {
			e.cancelToken = t
		}
		if e.cancelToken == 0 {
			return ucs.OK
		}
		return ucs.InProgress
	case e.txQueue == nil || len(e.qps) > 1 || len(e.f.draining) > 0: // another QP may have operations in flight
		return e.f.flush(e, t)
	case e.txQueue.head == e.txQueue.tail:
		return ucs.OK
	case !e.txQueue.room():
		return ucs.NoResource
	}
	e.txQueue.postZeroWrite(t)
	return ucs.InProgress
}

// postZeroWrite posts a write of zero bytes. It completes after all operations before it.
func (q *sendQueue) postZeroWrite(t uct.Token) {
	w := q.nextWR()
	w.Op, w.NumSG, w.InlineLen, w.Remote, w.RKey = verbs.OpWrite, 0, 0, 0, 0
	q.takeSlot(slotControl, t, 0)
	q.post(w, verbs.SendSignaled)
}

// Fence makes the next operation wait for reads and atomics in flight. A QP executes all other
// operations in order.
func (e *ep) Fence() uct.Status {
	e.f.EnterWait()
	defer e.f.Leave()
	return e.fence()
}

func (e *ep) fence() uct.Status {
	if e.status == ucs.OK && e.txQueue != nil {
		e.txQueue.fence = e.txQueue.reads > 0
	}
	return e.status
}

// Check writes zero bytes to the peer, which fails if the peer is dead.
func (e *ep) Check(t uct.Token) uct.Status {
	if !e.f.Enter() {
		return ucs.NoResource
	}
	defer e.f.Leave()
	switch {
	case e.status != ucs.OK:
		return e.status
	case e.txQueue == nil || !e.txQueue.room():
		return e.noResource(false)
	}
	e.txQueue.postZeroWrite(t)
	return ucs.InProgress
}

// Close closes the endpoint. The connection stays until the peer has closed its side.
// Operations that were accepted are still executed.
func (e *ep) Close() {
	e.f.EnterWait()
	defer e.f.Leave()
	if !e.Drop(conn.Opened) || e.Life == conn.Released {
		return
	}
	e.pend = pending.Queue{}
	e.abort()
	if e.status == ucs.OK {
		e.rejectOps(ucs.Closed)
	}
	if !e.Life.Over() && e.M.State() != machine.StateIdle && !e.M.PeerDrained() || e.f.hasInFlight(e) {
		e.f.Count(e) // Progress must run: for messages and the CLOSE of the peer, and for events of operations in flight
	}
	if !e.Life.Over() {
		e.step(machine.Event{Kind: machine.EventClose})
	}
	e.f.Schedule(e)
}

// rejectOps makes all further operations return s.
func (e *ep) rejectOps(s uct.Status) {
	e.status = s
	e.updateFastPath()
}

// release frees all resources of the connection. Operations in flight complete with st.
func (e *ep) release(st uct.Status) {
	if !e.Life.Step(conn.Release) {
		return
	}
	e.f.halfOpen.Remove(e)
	e.closeQPs(st)
	if e.ah != nil {
		_ = e.ah.Close() // closing an address handle cannot fail here
	}
	if e.hasReserved { // the message is discarded
		e.abort()
	}
	e.dropID()
	e.f.Remove(e, e.peer.iface.name)
}

func (e *ep) closeQPs(st uct.Status) {
	e.txQueue = nil
	e.updateFastPath()
	for _, p := range e.qps {
		p.close(st)
	}
	e.qps = nil
}

// flightStatus returns the status that operations in flight complete with when err ends their
// connection.
func flightStatus(err error) uct.Status {
	switch {
	case errors.Is(err, ucs.ErrCanceled):
		return ucs.Canceled
	case errors.Is(err, ucs.ErrRemoteAccess):
		return ucs.RemoteAccess
	}
	return ucs.PeerFailed
}
