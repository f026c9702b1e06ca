package rc

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// A connection ends in one of three ways: it fails (FailLater), its peer sends no more
// (Machine.PeerDrained), or both sides have closed it. Each call that notices this only records it and
// schedules the connection. The next Progress calls serviceEP, which does the rest. Package
// transports/internal/conn has the states.
//
// Invariant: callbacks are made only from Progress, and in this order. First all received
// messages are delivered, then operations in flight complete, then the failure or the end of
// the peer's messages is reported, once. After a failure the layer above gets nothing more for
// the connection.

// serviceInterval is the interval at which Progress services timers, draining QPs and idle connections.
const serviceInterval = 500 * time.Microsecond

// Disconnect implements uct.Iface.
func (f *iface) Disconnect(source uint32) {
	f.EnterWait()
	defer f.Leave()
	if f.closed {
		return
	}
	f.Table.Disconnect(source)
	if f.armed && f.serviceNeeded {
		f.wake.Raise()
	}
}

// unused reports whether no operation or message has used the connection.
func (e *ep) unused() bool { return !e.Has(everConnected) && e.received == 0 }

// HasReceived implements conn.Connection.
func (e *ep) HasReceived() bool { return e.received > 0 }

// laterStatus returns the status of later operations on a connection that err ended.
func laterStatus(err error) uct.Status {
	if errors.Is(err, ucs.ErrCanceled) {
		return ucs.Canceled
	}
	return ucs.PeerFailed
}

// serviceEP processes what has ended on e: it tears down a connection that has failed, reports the
// end of the peer's messages, and releases the connection when both sides have finished.
func (f *iface) serviceEP(e *ep) (n int) {
	if e.Life == conn.Failing {
		if f.awaitACKs(e) {
			return n
		}
		// Deliver the received messages, notify the peer, complete the operations, report the failure.
		f.flushPostList()
		for _, p := range e.qps {
			f.drainCompletions(p)
		}
		for f.drainedAt < len(f.drained) {
			n += f.processRecvs(f.recvWCs[:f.takeDrained(f.recvWCs[:])])
		}
		n += f.deliverOutOfOrder()
		if conn.IsFailure(e.Err) {
			e.step(machine.Event{Kind: machine.EventPeerLost})
		}
		e.closeQPs(flightStatus(e.Err))
		for _, p := range f.draining {
			if p.e == e {
				p.close(flightStatus(e.Err))
			}
		}
		f.removeClosed()
		if e.cancelToken != 0 {
			f.queueEvent(uct.Event{Token: e.cancelToken})
		}
		if f.queuedEvents != 0 {
			f.deliverEvents()
		}
		f.report(e)
	}
	if !e.Life.Over() && e.M.PeerDrained() {
		f.uncountAccepted(e)
		f.reports += f.ReportRxEnd(e)
		if !e.Has(conn.Opened) && !e.M.Closing() {
			e.step(machine.Event{Kind: machine.EventClose})
		}
	}
	s := e.M.State()
	if e.Has(conn.Opened) || !e.Life.Over() && s != machine.StateClosed && s != machine.StateIdle {
		return n
	}
	// Both sides have finished with the connection. Its QPs drain.
	if e.Life != conn.Ended {
		f.report(e)
	}
	for _, p := range e.qps {
		f.startDraining(p)
	}
	e.qps = nil
	e.release(ucs.Canceled)
	f.uncountAccepted(e)
	return n
}

// ackWait is how long a connection whose peer has closed waits for ACKs of operations in flight. The
// peer's device sends them at the latest when its queue pair is destroyed. They may arrive after the
// SHUTDOWN.
const ackWait = 50 * time.Millisecond

// awaitACKs reports whether the end of e must wait for ACKs, because its peer has closed. A later
// serviceTimers services e again.
func (f *iface) awaitACKs(e *ep) bool {
	if !errors.Is(e.Err, conn.ErrPeerClosed) || !e.Has(conn.Opened) {
		return false
	}
	now, waits := ucs.Now(), false
	for q := range f.inFlight(e) {
		if q.p.inError {
			continue
		}
		waits = true
		if e.ackDeadline == 0 && q.signaled == 0 && q.tail-q.head <= q.mask {
			q.postZeroWrite(0) // its completion covers the unsignaled ones
		}
	}
	switch {
	case !waits || e.ackDeadline != 0 && e.ackDeadline <= now:
		return false
	case e.ackDeadline == 0:
		e.ackDeadline = now.Add(ackWait)
	}
	f.awaiting = append(f.awaiting, e)
	return true
}

// report reports the end of a connection to the layer above.
func (f *iface) report(e *ep) {
	f.uncountAccepted(e)
	f.reports += f.Report(e, e.unused())
	if e.status == ucs.OK && e.Err != nil {
		e.rejectOps(laterStatus(e.Err))
	}
}

// sendFailed processes the completion of a failed send: the QP is in the error state. The
// connection fails, even if it has moved to another QP: without the switch-over marker the peer
// delivers no message of the new one.
func (p *connQP) sendFailed(wc *verbs.WC) {
	p.q.signaled-- // the operation may have been unsignaled; close corrects the count
	p.q.f.signaled--
	var err error
	switch wc.Status {
	case verbs.WCRemAccessErr, verbs.WCRemInvReqErr, verbs.WCRemOpErr:
		err = fmt.Errorf("%w: %v", ucs.ErrRemoteAccess, wc.Status)
	case verbs.WCRetryExcErr, verbs.WCRNRRetryExcErr:
		err = conn.PeerFailed("it does not answer: " + wc.Status.String())
	case verbs.WCFlushErr: // the device moved the QP to the error state, because it rejected a request of the peer
		err = errAccessAtResponder
	default:
		err = conn.PeerFailed(wc.Status.String())
	}
	reported := p.inError || p.e.Life == conn.Released
	if !p.inError {
		p.inError, p.failedID = true, uint32(wc.ID)
	}
	if reported {
		return
	}
	if k := p.q.slots[uint32(wc.ID)&p.q.mask].kind; k != slotControl && k != slotFlush {
		p.e.Add(conn.Unacked)
	}
	if !errors.Is(err, ucs.ErrRemoteAccess) && p.q.f.shutdownArrived(p.e) {
		err = conn.ErrPeerClosed
	}
	if !p.e.Life.Over() {
		p.q.completeTo(uint32(wc.ID), flightStatus(err))
	}
	if errors.Is(err, errAccessAtResponder) {
		p.q.f.failAccess(p.e)
		return
	}
	p.q.f.FailLater(p.e, err)
}

// serviceTimers services what causes no completion: timers, draining QPs, idle connections, keepalive.
func (f *iface) serviceTimers() {
	if !f.AlarmSet() && len(f.awaiting) == 0 && len(f.draining) == 0 && len(f.byLocalID) == 0 && len(f.accessErrors.unacked) == 0 {
		return
	}
	now := ucs.Now()
	if now < f.nextService {
		return
	}
	f.nextService = now.Add(serviceInterval)
	f.drainEvents() // consume events of an earlier Arm: the program does not sleep now
	f.PollAlarm(now)
	f.handleQPErrors()
	f.handleDeviceFailure()
	f.ud.poll(udRecvs) // one of them may have been of the connection messages' queue, which is then not armed
	awaiting := f.awaiting
	f.awaiting = nil
	for _, e := range awaiting {
		f.Schedule(e)
	}
	f.expireTimers(now)
	f.reapDraining(now)
	f.EvictIdle(now)
	f.checkPeers(now)
	if now.Sub(f.keepaliveAt) >= f.keepalive/4 {
		f.keepaliveAt = now
		f.sendKeepalives(now)
	}
}

// expireTimers runs the state machines whose deadlines have expired, and reports whether there were
// any.
func (f *iface) expireTimers(now ucs.Time) (stepped bool) {
	f.retransmitResets(now)
	for e := range f.timers.Drain() {
		if e.Life.Over() || e.M.Deadline() == 0 {
			continue
		}
		if e.M.Deadline() <= now {
			e.step(machine.Event{Kind: machine.EventTick})
			stepped = true
		}
		e.setTimer()
	}
	return stepped
}

// setTimer puts e into iface.timers if its machine has a deadline, and sets the alarm.
func (e *ep) setTimer() {
	f, at := e.f, e.M.Deadline()
	if at == 0 {
		return
	}
	f.SetAlarm(at)
	f.timers.Add(e)
}

// sendKeepalives writes zero bytes to each peer that has acknowledged nothing for the keepalive
// interval: a dead peer does not acknowledge them. It resumes suspended connections on which
// the layer above waits; their peers must reply to that.
func (f *iface) sendKeepalives(now ucs.Time) {
	f.QueryWaits(uct.WaitForClose)
	for _, e := range f.Slots {
		if e == nil || e.Life.Over() {
			continue
		}
		if e.txQueue == nil {
			if e.lastProgress == 0 {
				e.lastProgress = now
			}
			if e.Awaited != uct.WaitNone && now.Sub(e.lastProgress) >= f.keepalive {
				e.lastProgress = now
				e.ensureConnected()
			}
			continue
		}
		q := e.txQueue
		if q.head != e.lastHead || e.lastProgress == 0 {
			e.lastHead, e.lastProgress = q.head, now
		}
		if now.Sub(e.lastProgress) >= f.keepalive && q.signaled == 0 {
			e.lastProgress = now
			q.postZeroWrite(0)
		}
	}
}

// CheckPeers implements uct.PeerChecker.
func (f *iface) CheckPeers() time.Duration {
	if f.closed || !f.d.ChecksPeers() {
		return 0
	}
	f.EnterWait()
	defer f.Leave()
	now := ucs.Now()
	return f.peerChecks.Within(now, f.checkPeers(now))
}

// checkPeers has the device probe the peers that have been silent while something waits for them.
// It fails the connections with those that are gone. It reports whether the check was due.
func (f *iface) checkPeers(now ucs.Time) bool {
	if !f.d.ChecksPeers() || !f.peerChecks.Start(now, len(f.Slots)) {
		return false
	}
	f.QueryWaits(uct.WaitForClose)
	for _, p := range f.draining {
		if p.q.head != p.q.tail {
			p.e.Awaited = uct.WaitForReply
		}
	}
	for _, e := range f.Slots {
		if e == nil || e.Life.Over() || e.Life == conn.HalfOpen { // a half-open peer may be forged
			continue
		}
		uses, waits := e.received, e.Awaited != uct.WaitNone || e.pend.Len() > 0 || e.M.Deadline() != 0
		for _, p := range e.qps {
			uses += p.q.head
			waits = waits || p.q.head != p.q.tail
		}
		if uses != e.lastUses {
			e.lastUses = uses
			e.silence.Received(now)
		}
		if !e.silence.Over(&f.peerChecks, now, waits) {
			continue
		}
		if e.silence.Lasts(now) >= nic.LongSilence {
			e.requestCompletion() // unsignaled operations complete with it: the peer has not sent anything, and lives
		}
		if s := f.d.PeerState(f.port, &e.peer.port, e.peer.iface.qpn, &e.silence); s != verbs.PeerUnknown {
			for _, o := range f.ByPeer[e.peer.iface.name] {
				err := conn.PeerFailed(s.String())
				if f.shutdownArrived(o) {
					err = conn.ErrPeerClosed
				}
				f.FailLater(o, err)
			}
		}
	}
	return true
}

// Flush completes when the operations posted before it on all endpoints have completed.
func (f *iface) Flush(t uct.Token) uct.Status {
	if !f.Enter() {
		return ucs.NoResource
	}
	defer f.Leave()
	if f.closed {
		return ucs.Closed
	}
	return f.flush(nil, t)
}

// flush completes t when all operations in flight have completed. With e it covers the
// operations of e and reports their failure. Without, it covers all endpoints and completes
// with OK.
func (f *iface) flush(e *ep, t uct.Token) uct.Status {
	n := 0
	for q := range f.inFlight(e) {
		if q.p.inError || q == q.p.e.txQueue && !q.room() || q.tail-q.head > q.mask {
			return ucs.NoResource
		}
		n++
	}
	if n == 0 {
		return ucs.OK
	}
	i := f.flushes.add(flush{token: t, remaining: n, perEndpoint: e != nil})
	for q := range f.inFlight(e) {
		q.postZeroWrite(0)
		q.slots[(q.tail-1)&q.mask] = slot{kind: slotFlush, buf: i}
	}
	return ucs.InProgress
}

// inFlight iterates over the queues with operations in flight, of e or of all connections. It
// includes draining QPs.
func (f *iface) inFlight(e *ep) iter.Seq[*sendQueue] {
	return func(yield func(*sendQueue) bool) {
		es := f.Slots
		if e != nil {
			es = []*ep{e}
		}
		for _, o := range es {
			if o == nil {
				continue
			}
			for _, p := range o.qps {
				if p.q.head != p.q.tail && !yield(&p.q) {
					return
				}
			}
		}
		for _, p := range f.draining {
			if (e == nil || p.e == e) && p.q.head != p.q.tail && !yield(&p.q) {
				return
			}
		}
	}
}

func (f *iface) hasInFlight(e *ep) bool {
	for range f.inFlight(e) {
		return true
	}
	return false
}

// flush is a flush of several queues in flight.
type flush struct {
	token       uct.Token
	remaining   int  // queues still to complete
	perEndpoint bool // of one endpoint: reports its failure
	st          uct.Status
}

type flushes struct {
	all  []flush
	free []uint32
}

func (fs *flushes) add(fl flush) uint32 {
	if k := len(fs.free); k > 0 {
		i := fs.free[k-1]
		fs.free = fs.free[:k-1]
		fs.all[i] = fl
		return i
	}
	fs.all = append(fs.all, fl)
	return uint32(len(fs.all) - 1)
}

// countDown counts down the queues of flush i. It returns the event after the last one.
func (fs *flushes) countDown(i uint32, st uct.Status) uct.Event {
	fl := &fs.all[i]
	if fl.perEndpoint && st != ucs.OK {
		fl.st = st
	}
	if fl.remaining--; fl.remaining > 0 {
		return uct.Event{}
	}
	fs.free = append(fs.free, i)
	return uct.Event{Token: fl.token, Status: fl.st}
}
