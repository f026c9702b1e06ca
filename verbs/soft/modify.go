package soft

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Modify changes state and attributes.
func (q *qp) Modify(a *verbs.QPAttr, mask verbs.AttrMask) error {
	q.controlMu.Lock()
	defer q.controlMu.Unlock()
	if qpState(q.state.Load()) == qpClosed {
		return fmt.Errorf("modify qp 0x%x: %w", uint32(q.num), ucs.ErrClosed)
	}
	from := q.loadState()
	to, err := verbs.CheckModify(q.typ, from, a, mask)
	if err == nil {
		err = q.checkLimits(a, mask)
	}
	var path route
	if err == nil && mask&verbs.AttrAV != 0 {
		features := q.attr.PeerFeatures
		if mask&verbs.AttrPeerFeatures != 0 {
			features = a.PeerFeatures
		}
		path, err = q.d.resolve(&a.AV, features)
		err = withAttr(verbs.AttrAV, err)
		if path.peer != nil {
			dest := q.attr.DestQPN
			if mask&verbs.AttrDestQPN != 0 {
				dest = a.DestQPN
			}
			path.peer = path.peer.d.engineOf(dest)
		}
	}
	if err != nil {
		return fmt.Errorf("modify qp 0x%x: %w", uint32(q.num), err)
	}
	q.acquire()
	defer q.transmitAndRelease()
	if to == verbs.StateErr || to == verbs.StateReset {
		q.sendFinalAck()
	}
	if to == verbs.StateReset {
		q.reset()
		return nil
	}
	q.attr.Apply(a, mask)
	q.attr.MaxRdAtomic = uint8(min(int(q.attr.MaxRdAtomic), q.d.attr.MaxQPInitRdAtomic))
	if mask&verbs.AttrAV != 0 {
		q.route = path
	}
	q.icrc = q.d.icrcCheck(q.foreign())

	// Copy the attributes to the machines.
	a = &q.attr
	q.dest, q.qkey, q.access, q.pkey = a.DestQPN, a.QKey, a.Access, defaultPKey
	r, s := &q.req, &q.rsp
	s.maxSaved, s.minTimer = uint32(a.MaxDestRdAtomic), a.MinRNRTimer
	r.maxRdAtomic, r.retryCnt, r.rnrRetry = a.MaxRdAtomic, a.RetryCnt, a.RNRRetry
	r.timeout = timeoutOf(a.Timeout)
	r.probe.enabled = a.PeerFeatures&verbs.PeerProbe != 0 && q.typ == verbs.RC
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
		r.psn, r.una, r.sndMax, r.rerequested, q.sq.nextPSN = a.SQPSN, a.SQPSN, a.SQPSN, a.SQPSN, a.SQPSN
		r.window, r.probe = newWindow(q.d.window(q.mtu), q.mtu), probe{enabled: r.probe.enabled}
		r.retries, r.rnrRetries, r.fill = a.RetryCnt, a.RNRRetry, gapFill{reducedAt: a.SQPSN}
	}

	switch {
	case to == from:
	case to == verbs.StateErr:
		q.enterErr()
	case to == verbs.StateSQD && a.EnSQDAsyncNotify && mask&verbs.AttrEnSQDAsyncNotify != 0:
		q.setState(qpDraining)
	default:
		q.setState(qpState(to))
	}
	return nil
}

// checkLimits compares attributes with the limits of the device. The error names all
// that exceed them.
func (q *qp) checkLimits(a *verbs.QPAttr, mask verbs.AttrMask) error {
	d := q.d
	var errs []error
	longest := d.conf.MTU
	if q.typ == verbs.UC {
		longest = d.activeMTU()
	}
	for _, c := range []struct {
		attr       verbs.AttrMask
		got, limit int
	}{
		{verbs.AttrPort, int(a.Port), d.attr.Ports},
		{verbs.AttrPKeyIndex, int(a.PKeyIndex), 0},
		{verbs.AttrPathMTU, a.PathMTU.Bytes(), longest.Bytes()},
		{verbs.AttrMaxDestRdAtomic, int(a.MaxDestRdAtomic), d.attr.MaxQPRdAtomic},
	} {
		if mask&c.attr != 0 && c.got > c.limit {
			errs = append(errs, fmt.Errorf("%v %d, the device has %d: %w", c.attr, c.got, c.limit, ucs.ErrInvalid))
		}
	}
	if unknown := a.Access &^ (knownAccess | unsupportedAccess); mask&verbs.AttrAccessFlags != 0 && unknown != 0 {
		errs = append(errs, fmt.Errorf("%v %v: %w", verbs.AttrAccessFlags, unknown, ucs.ErrInvalid))
	}
	if unknown := a.PeerFeatures &^ (verbs.PeerProbe | verbs.PeerGoucx); mask&verbs.AttrPeerFeatures != 0 && unknown != 0 {
		errs = append(errs, fmt.Errorf("%v %#x: %w", verbs.AttrPeerFeatures, unknown, ucs.ErrInvalid))
	}
	if mask&verbs.AttrAV != 0 {
		errs = append(errs, withAttr(verbs.AttrAV, d.checkAddress(&a.AV)))
		if a.AV.DGID.Addr().IsMulticast() {
			errs = append(errs, fmt.Errorf("%v: no queue pair is connected to multicast group %v: %w", verbs.AttrAV, a.AV.DGID.Addr(), ucs.ErrInvalid))
		}
		if mask&verbs.AttrPathMTU != 0 && a.PathMTU > verbs.MTU4096 && d.isForeign(a.PeerFeatures) {
			errs = append(errs, fmt.Errorf("%v %d, a peer without PeerGoucx takes 4096: %w", verbs.AttrPathMTU, a.PathMTU.Bytes(), ucs.ErrInvalid))
		}
	}
	return errors.Join(errs...)
}

// withAttr adds the name of an attribute to err; nil stays nil.
func withAttr(attr verbs.AttrMask, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: %w", attr, err)
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
	q.setState(qpReset)
	q.req.reorder.reset()
	q.rsp.reorder.reset()
	q.req = requester{head: q.sq.end(), tx: q.sq.end()}
	q.sq.head.Store(q.req.head)
	q.rsp = newResponder()
	if q.srq == nil {
		q.rq.reset()
	}
	q.attr = verbs.QPAttr{}
	q.route = route{}
	q.sendCQ.purge(q.num)
	q.recvCQ.purge(q.num)
}

// Query returns the present attributes and state.
func (q *qp) Query() verbs.QPAttr {
	q.controlMu.Lock()
	defer q.controlMu.Unlock()
	a := q.attr
	a.State, a.CurState, a.Caps = q.loadState(), q.loadState(), q.caps
	return a
}

// Close destroys the queue pair.
//
// The order matters. The QP leaves the table only after reset, because a goroutine that
// does not find it must not access its memory any more. Then Close waits for the
// goroutine that found it before. Completions of the QP are removed last.
func (q *qp) Close() error {
	q.controlMu.Lock()
	if qpState(q.state.Load()) == qpClosed {
		q.controlMu.Unlock()
		return nil
	}
	if err := q.checkDetached(); err != nil {
		q.controlMu.Unlock()
		return err
	}
	d := q.d
	q.acquire()
	q.sendFinalAck()
	q.reset()
	q.setState(qpClosed)
	q.transmitAndRelease()
	d.mu.Lock()
	d.qps.remove(q)
	d.mu.Unlock()
	d.awaitReceivers()
	e := q.e
	e.lock.lock()
	e.timed = slices.DeleteFunc(e.timed, func(x *qp) bool { return x == q })
	e.dirty = slices.DeleteFunc(e.dirty, func(x *qp) bool { return x == q })
	e.lock.unlock()
	q.acquire()
	q.transmitAndRelease()
	d.memoryUsers.remove(q)
	q.sendCQ.purge(q.num)
	q.recvCQ.purge(q.num)
	q.controlMu.Unlock()

	// Not under controlMu: a goroutine may call Query before it acknowledges an event.
	return d.releaseQP(q)
}
