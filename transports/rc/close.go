package rc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// Close ends each connection with SHUTDOWN, the last message in its direction: on the QP after all
// accepted operations, and by datagram. A suspended connection gets the datagram alone.
//
// Invariant: Close returns when each peer has acknowledged SHUTDOWN, has sent its own, or the time is
// over. An unacknowledged SHUTDOWN must not be dropped earlier: the peer would exhaust its retries
// and report a failure instead of an orderly end.

const (
	// closeTimeout bounds how long Close waits until operations are acknowledged.
	closeTimeout = time.Second
	// closeTries is how often Close sends SHUTDOWN by datagram, every closeInterval, until the
	// peer acknowledges it. If SHUTDOWN was also sent on a QP, the datagrams are sent only in
	// the last part of closeTimeout. The messages before it on the QP then arrive first.
	closeTries    = 12
	closeInterval = 20 * time.Millisecond
	// echoWait bounds how long Close waits for its own datagram, which may be lost.
	echoWait = 5 * time.Millisecond
	// echoConn is the connection identifier in that datagram. It is no connection's.
	echoConn = 1
)

// Close sends SHUTDOWN to each peer, after all accepted operations, and closes all connections.
// It waits up to a second until the peers have acknowledged everything. Operations without an
// ACK are then lost. On a busy machine SHUTDOWN may take another second.
func (f *iface) Close() error {
	if f.closed {
		return nil
	}
	if f.ProgressDepth > 0 {
		return fmt.Errorf("close rc iface from one of its callbacks: %w", ucs.ErrBusy)
	}
	f.EnterWait()
	f.closed = true
	f.Leave()
	err := f.CloseSection()
	if f.group != nil {
		f.group.Remove(transportName + "." + f.d.DeviceName(f.port))
	}
	f.shutdownPeers()
	err = errors.Join(err, f.releaseAll())
	f.d.IfaceClosed()
	return err
}

// unackedShutdown is a SHUTDOWN that the peer has acknowledged neither on the QP nor by datagram.
type unackedShutdown struct {
	e     *ep
	at    ucs.Time // when the next datagram is sent, or the SHUTDOWN is abandoned
	tries int
}

// shutdownPeers sends SHUTDOWN to all peers and waits until they have acknowledged it.
//
// SHUTDOWN is sent on the QP, after all other messages. The QP may retransmit it only after
// closeTimeout, because its estimate of the round-trip time may be long. The peer would then notice
// the close by its own retries and report a failure. So SHUTDOWN is also sent by datagram.
//
// hangUp also sends a datagram to this interface. When that arrives, all connection messages
// that arrived before it have been processed.
func (f *iface) shutdownPeers() {
	start := ucs.Now()
	end, echoEnd := start.Add(closeTimeout), start.Add(echoWait)
	var closes []unackedShutdown
	if ah, err := f.pd.CreateAH(f.d.AH(f.port, &f.self.port)); err == nil {
		f.sendConnMsg(&connMsg{msg: machine.Msg{Kind: machine.MsgReset, Worker: f.worker, From: echoConn, To: echoConn}, flags: flagShutdown}, &f.self, ah)
		_ = ah.Close() // the posted datagram is still sent
	} else {
		echoEnd = 0
	}
	for _, e := range f.Slots {
		if e == nil {
			continue
		}
		if e.status == ucs.OK {
			e.status = ucs.Closed
		}
		switch {
		case e.Life.Over():
			if e.Life == conn.Failing && conn.IsFailure(e.Err) {
				e.step(machine.Event{Kind: machine.EventPeerLost}) // notify the peer, as serviceEP would
			}
		case e.txQueue != nil:
			e.txQueue.postControl(idShutdown, 0)
			closes = append(closes, unackedShutdown{e: e, at: end.Add(-closeTries * closeInterval)})
		case e.M.State() == machine.StateOpen: // suspended, or the peer has not confirmed its QP yet
			closes = append(closes, unackedShutdown{e: e, at: start})
		}
		e.updateFastPath()
	}
	scanned := f.drainedAt
	for {
		if f.pollClosing() {
			echoEnd = 0
		}
		// A peer that has sent SHUTDOWN on a QP acknowledges nothing any more.
		f.drainRecvCQ()
		for ; scanned < len(f.drained); scanned++ {
			wc := &f.drained[scanned]
			if p := f.qpns.find(wc.QPN); p != nil && f.isShutdown(wc) {
				p.e.Fail(conn.ErrPeerClosed)
			}
		}
		now := ucs.Now()
		closes = f.sendShutdowns(closes, now)
		unacked := slices.ContainsFunc(f.draining, func(p *connQP) bool {
			return !p.inError && p.e.Err == nil && p.q.head != p.q.tail
		})
		if len(closes) == 0 && (end.Before(now) || !unacked && echoEnd.Before(now)) || end.Add(closeTimeout).Before(now) {
			return
		}
		for range 100 {
			f.pollSendCQ(sendPollBatch)
		}
	}
}

// isShutdown reports whether a receive completion is a SHUTDOWN.
func (f *iface) isShutdown(wc *verbs.WC) bool {
	return wc.Status == verbs.WCSuccess && wc.Len >= headerLen &&
		binary.LittleEndian.Uint64(f.rx.Bytes(uint32(wc.ID))[offID:]) == idShutdown
}

// shutdownArrived reports whether the peer of e has closed, which this side has not processed yet.
// An operation may run out of retries first.
func (f *iface) shutdownArrived(e *ep) bool {
	if f.closed {
		return false
	}
	f.ud.poll(udRecvs)
	if errors.Is(e.Err, conn.ErrPeerClosed) {
		return true
	}
	f.drainRecvCQ()
	for i := range f.drained[f.drainedAt:] {
		wc := &f.drained[f.drainedAt+i]
		if p := f.qpns.find(wc.QPN); p != nil && p.e == e && f.isShutdown(wc) {
			return true
		}
	}
	for _, p := range e.qps {
		if slices.ContainsFunc(p.outOfOrder, func(wc verbs.WC) bool { return f.isShutdown(&wc) }) {
			return true
		}
	}
	return false
}

// sendShutdowns sends the datagrams whose timer has expired, and returns the SHUTDOWNs without ACK.
// Those that were sent move to the end of the list, so that they do not delay the others.
func (f *iface) sendShutdowns(cs []unackedShutdown, now ucs.Time) []unackedShutdown {
	cs = slices.DeleteFunc(cs, func(c unackedShutdown) bool {
		return c.e.Life.Over() || c.tries == closeTries && c.at <= now || c.e.txQueue != nil && c.e.txQueue.head == c.e.txQueue.tail
	})
	for range cs {
		c := cs[0]
		if c.at <= now {
			if f.ud.full() {
				break
			}
			msg := machine.Msg{Kind: machine.MsgReset, Worker: f.worker, From: c.e.M.Conn(), To: c.e.M.Remote()}
			f.sendConnMsg(&connMsg{msg: msg, flags: flagShutdown}, &c.e.peer, c.e.ah)
			c.at, c.tries = now.Add(closeInterval), c.tries+1
		}
		cs = append(cs[1:], c)
	}
	return cs
}

// pollClosing processes connection messages, and marks peers that have sent SHUTDOWN. A peer that sends OPEN gets SHUTDOWN,
// because no side will accept it. The result reports whether this interface's own datagram arrived.
func (f *iface) pollClosing() (echo bool) {
	u := &f.ud
	for {
		k := u.recvCQ.Poll(u.wcs[:])
		if k <= 0 {
			return echo
		}
		for i := range u.wcs[:k] {
			var n connMsg
			if u.wcs[i].Status != verbs.WCSuccess || f.parseConnMsg(&n, &u.wcs[i]) != nil {
				continue
			}
			e := f.byLocalID[n.msg.To]
			switch {
			case n.from == f.self && n.msg.From == echoConn:
				echo = true
			case n.msg.Kind == machine.MsgOpen && n.msg.To == 0:
				f.sendConnMsgTo(&connMsg{msg: machine.Msg{Kind: machine.MsgReset, Worker: f.worker, From: n.msg.From, To: n.msg.From}, flags: flagShutdown}, &n.from)
			case n.has(flagShutdown) || n.msg.Kind == machine.MsgReset:
				if e != nil && e.peer.iface.name == n.from.iface.name && e.M.Remote() == n.msg.From {
					e.Fail(conn.ErrPeerClosed)
				}
				if n.has(flagShutdown) {
					f.replyStray(&n)
				}
			}
		}
	}
}

func (f *iface) releaseAll() (err error) {
	f.closed = true
	err = errors.Join(f.d.Unwatch(&f.watcher), f.CloseSection())
	for _, e := range f.Slots {
		if e != nil {
			e.release(ucs.Canceled)
		}
	}
	for _, p := range f.draining {
		p.close(ucs.Canceled)
	}
	err = errors.Join(err, f.ud.close())
	f.Clear()
	f.draining, f.waiting, f.awaiting, f.timers, f.readable = nil, nil, nil, conn.Queue[*ep]{}, nil
	if f.reserve != nil {
		err = errors.Join(err, f.reserve.Close())
	}
	for _, c := range []io.Closer{f.srq, f.sendCQ, f.recvCQ} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if f.wake != nil {
		err = errors.Join(err, f.wake.Close())
	}
	if f.channel != nil {
		err = errors.Join(err, f.channel.Close())
	}
	err = errors.Join(err, f.rx.CloseRetained(f.retained), f.tx.Close())
	if f.thread != nil {
		err = errors.Join(err, f.thread.Close())
	}
	return err
}
