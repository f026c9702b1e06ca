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
	// lastWait bounds how long Close waits until what was sent has arrived.
	lastWait = time.Second
	// closeTries is how often Close sends a CLOSE by datagram, every closeEvery, until the
	// peer acknowledges it. One that was sent in a queue pair goes by datagram only in the
	// last part of lastWait: what was sent before it arrives first.
	closeTries = 12
	closeEvery = 20 * time.Millisecond
	// echoWait bounds how long it waits for its own datagram. One is lost on a lossy
	// link.
	echoWait = 5 * time.Millisecond
	// echoConn names no connection: it is that of this datagram.
	echoConn = 1
)

// Close ends all connections and sends each peer a CLOSE after all that was accepted.
// Close waits up to a second until that has arrived; what has not is lost then. On a busy
// machine a CLOSE may take another second.
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

// closeOwner ends what the async goroutine does here; from then on the caller is alone.
func (f *iface) closeOwner() error {
	if !f.owned {
		return nil
	}
	f.owned = false
	return nic.CloseOwner(f.owner)
}

// closeMsg is the CLOSE of a connection that has no acknowledgement: neither by the queue
// pair nor by datagram.
type closeMsg struct {
	e     *ep
	at    ucs.Time // when the datagram is sent next, or the CLOSE is given up
	tries int
}

// hangUp sends a CLOSE to all peers and waits until they have acknowledged it. A queue
// pair may retransmit later than lastWait ends: its estimate of the round trip may be
// long. The peer would learn of the close only by its own retries, as a failure. So the
// CLOSE also goes by datagram.
//
// hangUp sends itself a datagram, too: when that comes, every connection message that had
// arrived before has been answered.
func (f *iface) hangUp() {
	begun := ucs.Now()
	end, echoEnd := begun.Add(lastWait), begun.Add(echoWait)
	var closes []closeMsg
	if ah, err := f.pd.CreateAH(f.self.port.AH(f.port)); err == nil {
		f.send(&note{msg: machine.Msg{Kind: machine.Gone, Worker: f.worker, From: echoConn, To: echoConn}, hangUp: true}, &f.self, ah)
		_ = ah.Close() // what was posted goes out
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
				e.step(machine.Event{Kind: machine.Lost}) // the peer is told, as tearDown would
			}
		case e.out != nil:
			e.out.control(idHangUp, 0)
			closes = append(closes, closeMsg{e: e, at: end.Add(-closeTries * closeEvery)})
		case e.m.State() == machine.Open: // asleep, or the peer is not ready yet
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

// sendCloses sends the datagrams that are due, and returns the CLOSEs that have no
// acknowledgement. What was sent goes to the end: it does not delay the others.
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
			msg := machine.Msg{Kind: machine.Gone, Worker: f.worker, From: c.e.m.Conn(), To: c.e.m.Remote()}
			f.send(&note{msg: msg, hangUp: true}, &c.e.peer, c.e.ah)
			c.at, c.tries = now.Add(closeEvery), c.tries+1
		}
		cs = append(cs[1:], c)
	}
	return cs
}

// heedHangUps finds the peers that have hung up themselves, and answer no more,
// among what has come since the stash was that long.
func (f *iface) heedHangUps(from int) int {
	f.stashAll()
	for i := from; i < len(f.stash); i++ {
		if e := f.hungUp(&f.stash[i]); e != nil && e.dead == nil {
			e.dead = errOrderly
		}
	}
	return len(f.stash)
}

// heedNotes is the same for connection messages. A peer that opens a connection receives
// the hang-up: nobody will accept it. heedNotes reports whether this interface's own
// datagram came.
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
			case n.msg.Kind == machine.Hello && n.msg.To == 0:
				f.sendTo(&note{msg: machine.Msg{Kind: machine.Gone, Worker: f.worker, From: n.msg.From, To: n.msg.From}, hangUp: true}, &n.from)
			case n.hangUp || n.msg.Kind == machine.Gone:
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

// hungUp finds the connection whose peer says by a message that it closed its
// interface; nil: it says something else.
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

// sending reports whether anything that was sent in queue pairs that were left has not
// arrived.
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
