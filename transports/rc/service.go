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

// tendEvery is how often what gives no sign is looked at.
const tendEvery = 500 * time.Microsecond

// failLater ends the connection in the next Progress, with its callback.
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

// Disconnect: see uct.Iface.
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

// unmade reports whether the connection ended because it could not be made: it is
// as if without resources until the layer above has heard of that.
func (e *ep) unmade() bool {
	return e.unused() && !errors.Is(e.dead, ucs.ErrPeerFailed) && !errors.Is(e.dead, ucs.ErrCanceled)
}

// unused reports whether nothing has gone by the connection.
func (e *ep) unused() bool { return !e.sent && e.got == 0 }

// statusAfter is what operations are refused with on a connection that ended so.
func statusAfter(err error) uct.Status {
	if errors.Is(err, ucs.ErrCanceled) {
		return ucs.Canceled
	}
	return ucs.PeerFailed
}

// settleLater has the next Progress see whether the connection is over.
func (f *iface) settleLater(e *ep) {
	if !e.settles {
		e.settles = true
		f.ending = append(f.ending, e)
	}
	f.attention = true
}

// service does what earlier calls brought up. Callbacks happen here.
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
	if e.dead == nil && e.m.PeerEnded() {
		f.uncount(e)
		if !e.parted {
			f.part(e)
		}
		if !e.opened && !e.m.SaidBye() {
			e.step(machine.Event{Kind: machine.Close})
		}
	}
	if e.done() {
		f.drop(e)
	}
	return n
}

// tearDown ends what is under way on a failed connection, delivers what has come,
// and reports it.
func (f *iface) tearDown(e *ep) (n int) {
	f.flushList()
	for _, p := range e.pairs {
		f.salvage(p)
	}
	n = f.drainStash() + f.deliverLate()
	if !errors.Is(e.dead, errOrderly) {
		e.step(machine.Event{Kind: machine.Lost}) // the peer is told
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

// closeLeft closes the pairs of a failed connection that linger.
func (f *iface) closeLeft(e *ep, st uct.Status) {
	for _, p := range f.dying {
		if p.e == e {
			p.close(st)
		}
	}
	f.forgetClosed()
}

// report tells the layer above that a connection ended.
func (f *iface) report(e *ep) {
	e.reported = true
	f.uncount(e)
	var fail uct.Failure
	if !e.parted && e.got > 0 {
		fail.Source = e.source
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
	fail.Unused = e.opened && e.unused()
	f.told++
	f.handler.HandleFailure(fail)
	if e.status == ucs.OK && e.dead != nil {
		e.shut(statusAfter(e.dead))
	}
}

// part tells the layer above that the peer sends no more.
func (f *iface) part(e *ep) {
	e.parted = true
	if e.got > 0 {
		f.told++
		f.handler.HandleFailure(uct.Failure{Source: e.source})
	}
}

// drop releases a connection that is over.
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

// broken acts on the completion of a send that failed: the queue pair is over. So is the
// connection, also where it has left the pair: without the marker nothing after it is read.
func (p *pair) broken(wc *verbs.WC) {
	p.q.signals-- // it may have been asked for or not: close sets it right
	p.q.f.signaled--
	var err error
	switch wc.Status {
	case verbs.WCRemAccessErr, verbs.WCRemInvReqErr, verbs.WCRemOpErr:
		err = fmt.Errorf("%w: %v", ucs.ErrRemoteAccess, wc.Status)
	case verbs.WCRetryExcErr, verbs.WCRNRRetryExcErr:
		err = failErr("it does not answer: " + wc.Status.String())
	case verbs.WCFlushErr: // the device has ended the queue pair, because it refused a request of the peer
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

// tend does what gives no sign: deadlines, pairs that linger, signs of life.
func (f *iface) tend() {
	if f.alarmAt == 0 && len(f.dying) == 0 && len(f.conns) == 0 && len(f.refusals.all) == 0 {
		return
	}
	now := ucs.Now()
	if now < f.nextTend {
		return
	}
	f.nextTend = now.Add(tendEvery)
	f.drain() // what an earlier Arm asked for may have come while nobody sleeps
	f.owner.Poll(now)
	f.takeRefused()
	f.ud.hear(udRecvs) // that event may have been of its queue, which is armed no more
	f.tick(now)
	f.bury(now)
	f.lull(now)
	if now.Sub(f.looked) >= f.keepalive/4 {
		f.looked = now
		f.askLives(now)
	}
}

// tick tells the machines whose deadlines have come, and reports whether there were
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
			e.step(machine.Event{Kind: machine.Tick})
			stepped = true
		}
		e.time()
	}
	return stepped
}

// time has tick look at e when its machine's deadline comes.
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

// askLives writes no bytes to peers of which nothing was heard: one that is dead
// does not acknowledge that. A connection that sleeps is woken where the layer above
// waits for it: the peer must answer that, too.
func (f *iface) askLives(now ucs.Time) {
	f.learnWaits(uct.WaitsForEnd)
	for _, e := range f.eps {
		if e == nil || e.dead != nil {
			continue
		}
		if e.out == nil {
			if e.lastUsed == 0 {
				e.lastUsed = now
			}
			if e.Awaited != uct.WaitsNot && now.Sub(e.lastUsed) >= f.keepalive {
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

// Flush ends when the operations of all endpoints posted before have.
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

// flush has t told when what is under way has ended: of e, with how that ended; nil:
// of all endpoints.
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

// underWay gives the queues in which something is under way, of e or of all: those of
// pairs that are sent in no more, too.
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

// flush is a flush of several queues under way.
type flush struct {
	token uct.Token
	left  int  // queues
	one   bool // of one endpoint, whose failure it tells
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

// ended counts a queue down; the event, when it was the last.
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
