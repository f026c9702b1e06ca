package rc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

const (
	// lastWait bounds how long Close waits until operations are acknowledged.
	lastWait = time.Second
	// closeTries is how often Close sends SHUTDOWN by datagram, every closeEvery, until the
	// peer acknowledges it. If SHUTDOWN was also sent on a QP, the datagrams are sent only in
	// the last part of lastWait. The messages before it on the QP then arrive first.
	closeTries = 12
	closeEvery = 20 * time.Millisecond
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
	if f.busy > 0 {
		return fmt.Errorf("close rc iface from one of its callbacks: %w", ucs.ErrBusy)
	}
	f.enterWait()
	f.closed = true
	f.leave()
	err := f.closeOwner()
	if f.group != nil {
		f.group.Remove(transportName + "." + f.d.DeviceName(f.port))
	}
	f.hangUp()
	err = errors.Join(err, f.releaseAll())
	f.d.IfaceClosed()
	return err
}

// closeOwner unregisters the interface from the async goroutine. Afterwards no section runs.
func (f *iface) closeOwner() error {
	if !f.owned {
		return nil
	}
	f.owned = false
	return nic.CloseOwner(f.owner)
}

// closeMsg is a SHUTDOWN that the peer has acknowledged neither on the QP nor by datagram.
type closeMsg struct {
	e     *ep
	at    ucs.Time // when the next datagram is sent, or the SHUTDOWN is abandoned
	tries int
}

// hangUp sends SHUTDOWN to all peers and waits until they have acknowledged it.
//
// SHUTDOWN is sent on the QP, after all other messages. The QP may retransmit it only after
// lastWait, because its estimate of the round-trip time may be long. The peer would then notice
// the close by its own retries and report a failure. So SHUTDOWN is also sent by datagram.
//
// hangUp also sends a datagram to this interface. When that arrives, all connection messages
// that arrived before it have been processed.
func (f *iface) hangUp() {
	begun := ucs.Now()
	end, echoEnd := begun.Add(lastWait), begun.Add(echoWait)
	var closes []closeMsg
	if ah, err := f.pd.CreateAH(f.self.port.AH(f.port)); err == nil {
		f.send(&note{msg: machine.Msg{Kind: machine.MsgReset, Worker: f.worker, From: echoConn, To: echoConn}, hangUp: true}, &f.self, ah)
		_ = ah.Close() // the posted datagram is still sent
	} else {
		echoEnd = 0
	}
	for _, e := range f.eps {
		if e == nil {
			continue
		}
		if e.status == ucs.OK {
			e.status = ucs.Closed
		}
		switch {
		case e.dead != nil:
			if !e.reported && !errors.Is(e.dead, errOrderly) {
				e.step(machine.Event{Kind: machine.EventPeerLost}) // notify the peer, as tearDown would
			}
		case e.out != nil:
			e.out.control(idHangUp, 0)
			closes = append(closes, closeMsg{e: e, at: end.Add(-closeTries * closeEvery)})
		case e.m.State() == machine.StateOpen: // suspended, or the peer has not confirmed its QP yet
			closes = append(closes, closeMsg{e: e, at: begun})
		}
		e.gate()
	}
	heeded := f.stashAt
	for {
		if f.heedNotes() {
			echoEnd = 0
		}
		heeded = f.heedHangUps(heeded)
		now := ucs.Now()
		closes = f.sendCloses(closes, now)
		late := end.Before(now)
		if len(closes) == 0 && (late || !f.sending() && echoEnd.Before(now)) || end.Add(lastWait).Before(now) {
			return
		}
		for range 100 {
			f.completions(endBatch)
		}
	}
}

// sendCloses sends the datagrams whose timer has expired, and returns the SHUTDOWNs without ACK.
// Those that were sent move to the end of the list, so that they do not delay the others.
func (f *iface) sendCloses(cs []closeMsg, now ucs.Time) []closeMsg {
	cs = slices.DeleteFunc(cs, func(c closeMsg) bool {
		return c.e.dead != nil || c.tries == closeTries && c.at <= now || c.e.out != nil && c.e.out.head == c.e.out.tail
	})
	for range cs {
		c := cs[0]
		if c.at <= now {
			if f.ud.full() {
				break
			}
			msg := machine.Msg{Kind: machine.MsgReset, Worker: f.worker, From: c.e.m.Conn(), To: c.e.m.Remote()}
			f.send(&note{msg: msg, hangUp: true}, &c.e.peer, c.e.ah)
			c.at, c.tries = now.Add(closeEvery), c.tries+1
		}
		cs = append(cs[1:], c)
	}
	return cs
}

// heedHangUps searches iface.stash, from index from, for SHUTDOWN messages. It marks the
// connections of those peers as dead: they acknowledge nothing any more. It returns the length
// of iface.stash.
func (f *iface) heedHangUps(from int) int {
	f.stashAll()
	for i := from; i < len(f.stash); i++ {
		if e := f.hungUp(&f.stash[i]); e != nil && e.dead == nil {
			e.dead = errOrderly
		}
	}
	return len(f.stash)
}

// heedNotes does the same for connection messages. A peer that sends OPEN gets SHUTDOWN,
// because no side will accept it. echo reports whether this interface's own datagram arrived.
func (f *iface) heedNotes() (echo bool) {
	u := &f.ud
	for {
		k := u.cq.Poll(u.wcs[:])
		if k <= 0 {
			return echo
		}
		for i := range u.wcs[:k] {
			var n note
			if u.wcs[i].Status != verbs.WCSuccess || f.parseNote(&n, &u.wcs[i]) != nil {
				continue
			}
			e := f.conns[n.msg.To]
			switch {
			case n.from == f.self && n.msg.From == echoConn:
				echo = true
			case n.msg.Kind == machine.MsgOpen && n.msg.To == 0:
				f.sendTo(&note{msg: machine.Msg{Kind: machine.MsgReset, Worker: f.worker, From: n.msg.From, To: n.msg.From}, hangUp: true}, &n.from)
			case n.hangUp || n.msg.Kind == machine.MsgReset:
				if e != nil && e.peer.iface.name == n.from.iface.name && e.m.Remote() == n.msg.From && e.dead == nil {
					e.dead = errOrderly
				}
				if n.hangUp {
					f.stray(&n)
				}
			}
		}
	}
}

// hungUp returns the connection of a SHUTDOWN message that was received on a QP; nil: it is
// another message.
func (f *iface) hungUp(wc *verbs.WC) *ep {
	p := f.qpns.find(wc.QPN)
	if p == nil || wc.Status != verbs.WCSuccess || wc.Len < headLen {
		return nil
	}
	if binary.LittleEndian.Uint64(f.rx.Bytes(uint32(wc.ID))[offID:]) != idHangUp {
		return nil
	}
	return p.e
}

// sending reports whether a draining QP has operations without an ACK.
func (f *iface) sending() bool {
	for _, p := range f.dying {
		if !p.doomed && p.e.dead == nil && p.q.head != p.q.tail {
			return true
		}
	}
	return false
}

func (f *iface) releaseAll() (err error) {
	f.closed = true
	err = f.closeOwner()
	for _, e := range f.eps {
		if e != nil {
			e.release(ucs.Canceled)
		}
	}
	for _, p := range f.dying {
		p.close(ucs.Canceled)
	}
	err = errors.Join(err, f.ud.close())
	f.eps, f.dying, f.waiting, f.ending, f.timed, f.late = nil, nil, nil, nil, nil, nil
	if f.reserve != nil {
		err = errors.Join(err, f.reserve.Close())
	}
	if f.srq != nil {
		err = errors.Join(err, f.srq.Close())
	}
	if f.sendCQ != nil {
		err = errors.Join(err, f.sendCQ.Close())
	}
	if f.recvCQ != nil {
		err = errors.Join(err, f.recvCQ.Close())
	}
	if f.wake != nil {
		err = errors.Join(err, f.wake.Close())
	}
	if f.channel != nil {
		err = errors.Join(err, f.channel.Close())
	}
	if f.rx != nil {
		err = errors.Join(err, f.rx.CloseUnder(f.kept))
	}
	if f.tx != nil {
		err = errors.Join(err, f.tx.Close())
	}
	if f.thread != nil {
		err = errors.Join(err, f.thread.Close())
	}
	return err
}
