package rc

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// A connection ends in one of three ways: it fails (failLater), its peer sends no more
// (Machine.PeerEnded), or both sides have closed it (ep.done). Each call that notices this only
// records it: settleLater puts the connection into iface.ending. service, in the next
// Progress, does the rest.
//
// Invariant: callbacks are made only from Progress, and in this order. First all received
// messages are delivered, then operations in flight complete, then the failure or the end of
// the peer's messages is reported, once. After a failure the layer above gets nothing more for
// the connection.

// tendEvery is the interval at which Progress services timers, draining QPs and idle connections.
const tendEvery = 500 * time.Microsecond

// failLater ends the connection with err. The next Progress completes its operations and
// reports the failure.
func (f *iface) failLater(e *ep, err error) {
	if e.dead != nil {
		return
	}
	e.dead = err
	if !errors.Is(err, errOrderly) {
		f.stats.Inc(statFailed)
	}
	if e.status == ucs.OK && !e.unmade() {
		e.shut(statusAfter(err))
	}
	f.settleLater(e)
}

// Disconnect implements uct.Iface.
func (f *iface) Disconnect(source uint32) {
	f.enterWait()
	defer f.leave()
	i := int(source) - 1
	if f.closed || i < 0 || i >= len(f.eps) || f.eps[i] == nil || f.eps[i].parted {
		return
	}
	f.failLater(f.eps[i], errDisconnected)
	if f.armed {
		f.wake.Raise()
	}
}

// unmade reports whether the connection ended because this side could not open it. Operations
// get NoResource until that is reported to the layer above.
func (e *ep) unmade() bool {
	return e.unused() && !errors.Is(e.dead, ucs.ErrPeerFailed) && !errors.Is(e.dead, ucs.ErrCanceled)
}

// unused reports whether no operation or message has used the connection.
func (e *ep) unused() bool { return !e.sent && e.got == 0 }

// statusAfter returns the status of later operations on a connection that err ended.
func statusAfter(err error) uct.Status {
	if errors.Is(err, ucs.ErrCanceled) {
		return ucs.Canceled
	}
	return ucs.PeerFailed
}

// settleLater lets the next Progress check whether the connection has ended.
func (f *iface) settleLater(e *ep) {
	if !e.settles {
		e.settles = true
		f.ending = append(f.ending, e)
	}
	f.attention = true
}

// service processes failures, ends of connections and out-of-order messages that earlier calls have
// recorded. It makes callbacks.
func (f *iface) service() (n int) {
	f.attention = false
	n = f.deliverLate()
	for len(f.ending) > 0 {
		es := f.ending
		f.ending = nil
		for _, e := range es {
			e.settles = false
			if !e.released {
				n += f.settleOne(e)
			}
		}
	}
	return n
}

func (f *iface) settleOne(e *ep) (n int) {
	if e.dead != nil && !e.reported {
		n = f.tearDown(e)
	}
	if e.dead == nil && e.m.PeerDrained() {
		f.uncount(e)
		if !e.parted {
			f.part(e)
		}
		if !e.opened && !e.m.Closing() {
			e.step(machine.Event{Kind: machine.EventClose})
		}
	}
	if e.done() {
		f.drop(e)
	}
	return n
}

// tearDown delivers the received messages of a failed connection, completes its operations and
// reports the failure.
func (f *iface) tearDown(e *ep) (n int) {
	f.flushList()
	for _, p := range e.pairs {
		f.salvage(p)
	}
	n = f.drainStash() + f.deliverLate()
	if !errors.Is(e.dead, errOrderly) {
		e.step(machine.Event{Kind: machine.EventPeerLost}) // notifies the peer
	}
	e.closePairs(statusOf(e.dead))
	f.closeLeft(e, statusOf(e.dead))
	if e.cancels != 0 {
		f.tell(uct.Event{Token: e.cancels})
	}
	if f.events != 0 {
		f.handEvents()
	}
	f.report(e)
	return n
}

// closeLeft closes the draining QPs of a failed connection.
func (f *iface) closeLeft(e *ep, st uct.Status) {
	for _, p := range f.dying {
		if p.e == e {
			p.close(st)
		}
	}
	f.forgetClosed()
}

// report reports the end of a connection to the layer above.
func (f *iface) report(e *ep) {
	e.reported = true
	f.uncount(e)
	var fail uct.Failure
	if !e.parted && e.got > 0 {
		fail.RxConn = e.source
	}
	if e.opened {
		fail.Endpoint = e
	}
	if fail == (uct.Failure{}) {
		return
	}
	if e.dead != nil && !errors.Is(e.dead, errOrderly) {
		fail.Err = e.dead
	}
	fail.NeverConnected = e.opened && e.unused()
	f.told++
	f.handler.HandleFailure(fail)
	if e.status == ucs.OK && e.dead != nil {
		e.shut(statusAfter(e.dead))
	}
}

// part reports to the layer above that the peer sends no more.
func (f *iface) part(e *ep) {
	e.parted = true
	if e.got > 0 {
		f.told++
		f.handler.HandleFailure(uct.Failure{RxConn: e.source})
	}
}

// drop releases a connection that has ended. Its QPs drain.
func (f *iface) drop(e *ep) {
	if !e.reported {
		f.report(e)
	}
	for _, p := range e.pairs {
		f.linger(p)
	}
	e.pairs = nil
	e.release(ucs.Canceled)
	f.uncount(e)
}

// broken processes the completion of a failed send: the QP is in the error state. The
// connection fails, even if it has moved to another QP: without the switch-over marker the peer
// delivers no message of the new one.
func (p *pair) broken(wc *verbs.WC) {
	p.q.signals-- // the operation may have been unsignaled; close corrects the count
	p.q.f.signaled--
	var err error
	switch wc.Status {
	case verbs.WCRemAccessErr, verbs.WCRemInvReqErr, verbs.WCRemOpErr:
		err = fmt.Errorf("%w: %v", ucs.ErrRemoteAccess, wc.Status)
	case verbs.WCRetryExcErr, verbs.WCRNRRetryExcErr:
		err = failErr("it does not answer: " + wc.Status.String())
	case verbs.WCFlushErr: // the device moved the QP to the error state, because it rejected a request of the peer
		err = errRefused
	default:
		err = failErr(wc.Status.String())
	}
	known := p.doomed || p.e.released
	p.doomed = true
	if known {
		return
	}
	if p.e.dead == nil {
		p.q.ended(uint32(wc.ID), statusOf(err))
	}
	if errors.Is(err, errRefused) {
		p.q.f.refuse(p.e)
		return
	}
	p.q.f.failLater(p.e, err)
}

// tend services what causes no completion: timers, draining QPs, idle connections, keepalive.
func (f *iface) tend() {
	if f.alarmAt == 0 && len(f.dying) == 0 && len(f.conns) == 0 && len(f.refusals.all) == 0 {
		return
	}
	now := ucs.Now()
	if now < f.nextTend {
		return
	}
	f.nextTend = now.Add(tendEvery)
	f.drain() // consume events of an earlier Arm: the program does not sleep now
	f.owner.Poll(now)
	f.takeRefused()
	f.ud.hear(udRecvs) // one of them may have been of the connection messages' queue, which is then not armed
	f.tick(now)
	f.bury(now)
	f.lull(now)
	if now.Sub(f.looked) >= f.keepalive/4 {
		f.looked = now
		f.askLives(now)
	}
}

// tick runs the state machines whose deadlines have expired, and reports whether there were
// any.
func (f *iface) tick(now ucs.Time) (stepped bool) {
	es := f.timed
	f.timed = nil
	f.sendRefusals(now)
	for _, e := range es {
		e.timed = false
		if e.released || e.dead != nil || e.m.Deadline() == 0 {
			continue
		}
		if e.m.Deadline() <= now {
			e.step(machine.Event{Kind: machine.EventTick})
			stepped = true
		}
		e.time()
	}
	return stepped
}

// time puts e into iface.timed if its machine has a deadline, and sets the alarm.
func (e *ep) time() {
	f, at := e.f, e.m.Deadline()
	if at == 0 {
		return
	}
	f.wakeAt(at)
	if !e.timed {
		e.timed = true
		f.timed = append(f.timed, e)
	}
}

// askLives writes zero bytes to each peer that has acknowledged nothing for the keepalive
// interval: a dead peer does not acknowledge them. It resumes suspended connections on which
// the layer above waits; their peers must reply to that.
func (f *iface) askLives(now ucs.Time) {
	f.learnWaits(uct.WaitForClose)
	for _, e := range f.eps {
		if e == nil || e.dead != nil {
			continue
		}
		if e.out == nil {
			if e.lastUsed == 0 {
				e.lastUsed = now
			}
			if e.Awaited != uct.WaitNone && now.Sub(e.lastUsed) >= f.keepalive {
				e.lastUsed = now
				e.want()
			}
			continue
		}
		q := e.out
		if q.head != e.lastHead || e.lastUsed == 0 {
			e.lastHead, e.lastUsed = q.head, now
		}
		if now.Sub(e.lastUsed) >= f.keepalive && q.signals == 0 {
			e.lastUsed = now
			q.nothing(0)
		}
	}
}

// Flush completes when the operations posted before it on all endpoints have completed.
func (f *iface) Flush(t uct.Token) uct.Status {
	if !f.enter() {
		return ucs.NoResource
	}
	defer f.leave()
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
	for q := range f.underWay(e) {
		if q.p.doomed || q == q.p.e.out && !q.room() || q.tail-q.head > q.mask {
			return ucs.NoResource
		}
		n++
	}
	if n == 0 {
		return ucs.OK
	}
	i := f.flushes.take(flush{token: t, left: n, one: e != nil})
	for q := range f.underWay(e) {
		q.nothing(0)
		q.slots[(q.tail-1)&q.mask] = slot{kind: slotFlush, buf: i}
	}
	return ucs.InProgress
}

// underWay iterates over the queues with operations in flight, of e or of all connections. It
// includes draining QPs.
func (f *iface) underWay(e *ep) iter.Seq[*queue] {
	return func(yield func(*queue) bool) {
		es := f.eps
		if e != nil {
			es = []*ep{e}
		}
		for _, o := range es {
			if o == nil {
				continue
			}
			for _, p := range o.pairs {
				if p.q.head != p.q.tail && !yield(&p.q) {
					return
				}
			}
		}
		for _, p := range f.dying {
			if (e == nil || p.e == e) && p.q.head != p.q.tail && !yield(&p.q) {
				return
			}
		}
	}
}

func (f *iface) isUnderWay(e *ep) bool {
	for range f.underWay(e) {
		return true
	}
	return false
}

// flush is a flush of several queues in flight.
type flush struct {
	token uct.Token
	left  int  // queues still to complete
	one   bool // of one endpoint: reports its failure
	st    uct.Status
}

type flushes struct {
	all  []flush
	free []uint32
}

func (fs *flushes) take(fl flush) uint32 {
	if k := len(fs.free); k > 0 {
		i := fs.free[k-1]
		fs.free = fs.free[:k-1]
		fs.all[i] = fl
		return i
	}
	fs.all = append(fs.all, fl)
	return uint32(len(fs.all) - 1)
}

// ended counts down the queues of flush i. It returns the event after the last one.
func (fs *flushes) ended(i uint32, st uct.Status) uct.Event {
	fl := &fs.all[i]
	if fl.one && st != ucs.OK {
		fl.st = st
	}
	if fl.left--; fl.left > 0 {
		return uct.Event{}
	}
	fs.free = append(fs.free, i)
	return uct.Event{Token: fl.token, Status: fl.st}
}
