package soft

import (
	"errors"
	"fmt"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Modify changes state and attributes.
func (q *qp) Modify(a *verbs.QPAttr, mask verbs.AttrMask) error {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.closed {
		return fmt.Errorf("modify qp 0x%x: %w", uint32(q.num), ucs.ErrClosed)
	}
	from := q.stateNow()
	to, err := verbs.CheckModify(q.typ, from, a, mask)
	if err == nil {
		err = q.checkLimits(a, mask)
	}
	var way route
	if err == nil && mask&verbs.AttrAV != 0 {
		features := q.attr.PeerFeatures
		if mask&verbs.AttrPeerFeatures != 0 {
			features = a.PeerFeatures
		}
		way, err = q.d.resolve(&a.AV, features)
		err = named(verbs.AttrAV, err)
	}
	if err != nil {
		return fmt.Errorf("modify qp 0x%x: %w", uint32(q.num), err)
	}
	q.wait()
	defer q.leave()
	if to == verbs.StateErr || to == verbs.StateReset {
		q.lastWord()
	}
	if to == verbs.StateReset {
		q.reset()
		return nil
	}
	q.attr.Apply(a, mask)
	if mask&verbs.AttrAV != 0 {
		q.to = way
	}
	q.adopt(from, to, mask)
	return nil
}

// checkLimits compares attributes with the limits of the device. The error names all
// that exceed them.
func (q *qp) checkLimits(a *verbs.QPAttr, mask verbs.AttrMask) error {
	d := q.d
	var errs []error
	for _, c := range []struct {
		attr       verbs.AttrMask
		got, limit int
	}{
		{verbs.AttrPort, int(a.Port), d.attr.Ports},
		{verbs.AttrPKeyIndex, int(a.PKeyIndex), 0},
		{verbs.AttrPathMTU, a.PathMTU.Bytes(), d.conf.MTU.Bytes()},
		{verbs.AttrMaxRdAtomic, int(a.MaxRdAtomic), d.attr.MaxQPInitRdAtomic},
		{verbs.AttrMaxDestRdAtomic, int(a.MaxDestRdAtomic), d.attr.MaxQPRdAtomic},
	} {
		if mask&c.attr != 0 && c.got > c.limit {
			errs = append(errs, fmt.Errorf("%v %d, the device has %d: %w", c.attr, c.got, c.limit, ucs.ErrInvalid))
		}
	}
	if unknown := a.Access &^ (knownAccess | laterAccess); mask&verbs.AttrAccessFlags != 0 && unknown != 0 {
		errs = append(errs, fmt.Errorf("%v %v: %w", verbs.AttrAccessFlags, unknown, ucs.ErrInvalid))
	}
	if unknown := a.PeerFeatures &^ (verbs.PeerProbe | verbs.PeerGoucx); mask&verbs.AttrPeerFeatures != 0 && unknown != 0 {
		errs = append(errs, fmt.Errorf("%v %#x: %w", verbs.AttrPeerFeatures, unknown, ucs.ErrInvalid))
	}
	if mask&verbs.AttrAV != 0 {
		errs = append(errs, named(verbs.AttrAV, d.checkAddress(&a.AV)))
		if mask&verbs.AttrPathMTU != 0 && a.PathMTU > verbs.MTU4096 && d.isForeign(a.PeerFeatures) {
			errs = append(errs, fmt.Errorf("%v %d, a peer without PeerGoucx takes 4096: %w", verbs.AttrPathMTU, a.PathMTU.Bytes(), ucs.ErrInvalid))
		}
	}
	return errors.Join(errs...)
}

// named adds the name of an attribute to err; nil stays nil.
func named(attr verbs.AttrMask, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: %w", attr, err)
}

// adopt copies attributes to the state of the machines and performs the state
// transition. The caller owns the queue pair.
func (q *qp) adopt(from, to verbs.QPState, mask verbs.AttrMask) {
	a := &q.attr
	q.dest, q.qkey, q.access, q.pkey = a.DestQPN, a.QKey, a.Access, defaultPKey
	r, s := &q.req, &q.rsp
	s.max, s.minTimer = uint32(a.MaxDestRdAtomic), a.MinRNRTimer
	r.maxRd, r.retryCnt, r.rnrRetry = a.MaxRdAtomic, a.RetryCnt, a.RNRRetry
	r.timeout = timeoutOf(a.Timeout)
	r.probe.on = a.PeerFeatures&verbs.PeerProbe != 0
	if mask&verbs.AttrPathMTU != 0 {
		q.mtu = a.PathMTU.Bytes()
	}
	if q.typ == verbs.UD {
		q.mtu = q.d.activeMTU().Bytes()
	}
	if mask&verbs.AttrRQPSN != 0 {
		s.psn = a.RQPSN
	}
	if mask&verbs.AttrSQPSN != 0 {
		r.psn, r.una, r.top, r.late, q.sq.next = a.SQPSN, a.SQPSN, a.SQPSN, a.SQPSN, a.SQPSN
		r.window, r.probe = newWindow(q.d.window(q.mtu), q.mtu), probe{on: r.probe.on}
		r.retries, r.rnrs = a.RetryCnt, a.RNRRetry
	}
	if to == from {
		return
	}
	if to == verbs.StateErr {
		q.enterErr()
		return
	}
	q.drain = to == verbs.StateSQD && a.EnSQDAsyncNotify && mask&verbs.AttrEnSQDAsyncNotify != 0
	q.state.Store(uint32(to))
}

// defaultPKey is the default partition with full membership. Ethernet has no other.
const defaultPKey = 0xffff

// timeoutOf returns the timeout for a code of QPAttr.Timeout; 0: none.
//
// Source: IBTA vol. 1, 11.2.5.2.
func timeoutOf(code uint8) time.Duration {
	if code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << code
}

// reset drops all queued work requests without completions.
func (q *qp) reset() {
	q.state.Store(uint32(verbs.StateReset))
	q.req.reorder.drop()
	q.rsp.reorder.drop()
	q.req = requester{head: q.sq.end(), tx: q.sq.end()}
	q.sq.head.Store(q.req.head)
	q.rsp = responder{ended: wire.PlaceOnly}
	if q.srq == nil {
		q.rq.drop()
	}
	q.known, q.drain = false, false
	q.attr = verbs.QPAttr{}
	q.to = route{}
	q.sendCQ.purge(q.num)
	q.recvCQ.purge(q.num)
}

// Query returns the present attributes and state.
func (q *qp) Query() verbs.QPAttr {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	a := q.attr
	a.State, a.CurState, a.Caps = q.stateNow(), q.stateNow(), q.caps
	return a
}

// Close destroys the queue pair.
func (q *qp) Close() error {
	if !q.shut() {
		return nil
	}
	// Not under q.ctl: a goroutine may call Query before it acknowledges an event.
	return q.d.dropped(q)
}

// shut removes the queue pair from the device. It returns false if it was closed
// already.
func (q *qp) shut() bool {
	q.ctl.Lock()
	defer q.ctl.Unlock()
	if q.closed {
		return false
	}
	q.closed = true
	d := q.d
	q.wait()
	q.lastWord()
	q.reset()
	q.leave()
	d.mu.Lock()
	d.qps.remove(q) // only after reset: a queue pair that is not found must not access memory
	d.mu.Unlock()
	d.forget(q)
	d.rx.left() // waits for a goroutine that found q in the table before
	q.wait()
	q.leave()
	d.lookers.remove(q)
	q.sendCQ.purge(q.num)
	q.recvCQ.purge(q.num)
	return true
}
