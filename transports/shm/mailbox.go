package shm

import (
	"sync/atomic"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/uct"
)

// A worker polls the mailbox of at most one connection, beside its ring: of one whose messages alternate, a request and
// its reply. There a hop takes one transfer of a cache line between cores instead of two (package
// ring). All other connections cost an idle pass one comparison.
//
//   - service compares how many messages the hot connections have sent and received since the last
//     time (selectMailbox). It begins to poll the mailbox of one where both are equal, and publishes that.
//   - A side sends in the mailbox only if it is its turn: it has received a message since it has
//     sent one, and the peer has acknowledged that one. All else goes through the ring.
//   - Messages have one sequence of numbers in mailbox and ring, so their order is kept.
//   - A message that is sent while the peer stops to poll the mailbox is found by service.
//   - After a send the side does not look at the line for some cycles (mailTuner). A look before the
//     reply is there takes the line from the peer, which is about to write it.

// mailState says whether a connection's mailbox is used.
type mailState uint8

const (
	mailRefused mailState = iota // the peer does not read it, or the setting says so
	mailOff                      // messages go through the ring
	mailOn                       // this side polls the mailbox: iface.mail
)

// mailbox is what a connection has of its mailbox.
type mailbox struct {
	state mailState
	used  bool // a message may be in the mailbox
	// follows: this side has found that the peer does not poll it, and begins again as soon as the peer does.
	follows bool

	// At the last service.
	sent, received uint64
	taken          uint64 // messages from the mailbox since then
	at             uint64 // in cycles
	poor           int    // successive services in which the mailbox was of little use

	tuner mailTuner
}

// mailPoll is what passes need of the mailbox that they poll.
type mailPoll struct {
	ep     *ep    // its connection; nil: none is polled
	sent   bool   // sent in the mailbox since the last pass
	taking bool   // a handler has a message of the mailbox
	hold   uint64 // cycles without a look after a send
	until  uint64 // the current hold-off ends then; 0: there is none
}

const (
	// mailExchanges is the minimum number of messages between two services for which a
	// connection gets the mailbox.
	mailExchanges = 16
	// mailPatience is the number of services after which a mailbox without use is no longer polled.
	mailPatience = 8
)

// selectMailbox begins or ends to poll the mailbox of a connection, and tunes it. It delivers messages in mailboxes
// that passes do not poll.
func (f *iface) selectMailbox() (n int) {
	if f.features&featureMailbox == 0 {
		return 0
	}
	now := cpu.Cycles()
	for _, e := range f.hot {
		b := &e.mail
		if b.state == mailRefused {
			continue
		}
		sent, received, cycles := e.tx.Head()-b.sent, e.rx.Consumed()-b.received, now-b.at
		b.sent, b.received, b.at = e.tx.Head(), e.rx.Consumed(), now
		taken := b.taken
		b.taken = 0
		// The counts are huge when the connection has moved to another ring pair.
		alternates := received >= mailExchanges && received < 1<<32 && sent-received+1 <= 2
		switch {
		case b.state == mailOn && alternates && taken*2 >= received:
			b.poor = 0
			if hold, profits := b.tuner.measured(cycles, received); profits {
				f.mail.hold = hold
			} else {
				f.leaveMailbox()
			}
		case b.state == mailOn:
			if b.poor++; b.poor >= mailPatience {
				f.leaveMailbox()
				if b.follows = !e.tx.MailPolled(); b.follows || received > 0 { // not idle: its messages are longer, or do not alternate
					b.tuner.lost()
				}
			}
		case b.used && e.rx.MailReady():
			n += f.drainMail(e)
		case alternates && f.mail.ep == nil:
			if hold, profits := b.tuner.ring(cycles, received); profits || b.follows && e.tx.MailPolled() {
				f.stats.Inc(statMailbox)
				f.mail = mailPoll{ep: e, hold: hold}
				b.state, b.used, b.follows, b.poor = mailOn, true, false, 0
				e.rx.SetMailPolled(true)
				f.setOnly()
				f.needPass() // no pass may be saved by polling the ring alone
			}
		}
	}
	return n
}

// leaveMailbox makes passes poll no mailbox.
func (f *iface) leaveMailbox() {
	e := f.mail.ep
	f.mail, e.mail.state = mailPoll{}, mailOff
	e.rx.SetMailPolled(false)
	f.setOnly()
	f.needPass()
}

// mailPass is Progress while a mailbox is polled.
//
//go:noinline
func (f *iface) mailPass(budget int) int {
	m := &f.mail
	if m.sent {
		m.sent, m.until = false, cpu.Cycles()+m.hold
	}
	if m.until != 0 {
		if cpu.Cycles() < m.until {
			cpu.Pause()
			return 0
		}
		m.until = 0
	}
	e := m.ep
	first, more := e.rx.PollMail()
	if more {
		return f.takeMail(e, first)
	}
	for _, h := range f.hot {
		if h.rx.Ready() {
			sent, received := e.tx.Head(), e.rx.Consumed()
			n := f.hotHit(budget)
			if m.ep == e && e.tx.Head() == sent && e.rx.Consumed() == received+1 {
				e.tx.OfferMail()
			}
			return n
		}
	}
	if f.left--; f.left <= 0 {
		return f.passMore(budget)
	}
	cpu.Pause()
	return 0
}

// takeMail delivers the message in e's mailbox, whose first word is first.
func (f *iface) takeMail(e *ep, first uint64) int {
	d := &f.ds[0]
	header, n, ok := e.rx.TakeMail(first, &f.mailData)
	if !ok {
		f.stats.Inc(statGarbage)
		if f.mail.ep == e {
			f.leaveMailbox() // passes look at nothing else while a message is there
		}
		f.FailLater(e, conn.PeerFailed("it wrote garbage into its mailbox"))
		return 0
	}
	f.enter()
	d.Off, d.Len, d.Header = 0, n, header
	d.ID, d.RxConn = uct.AMID(ring.ID(first))%uct.NumAMIDs, e.Source
	if e.tx.Acknowledge(first) && e.mail.state == mailOn {
		e.tx.OfferMail()
	}
	e.lastHit = f.passes()
	e.mail.taken++
	f.mail.taking = true
	f.handler.HandleAM(f.mailData[:], f.ds[:1])
	f.mail.taking = false
	if e.rx.Release() {
		e.roomFreed()
	}
	return 1 + f.leave()
}

// drainMail delivers the message in e's mailbox, if it is the next one.
func (f *iface) drainMail(e *ep) int {
	if first, more := e.rx.PollMail(); more && e.mail.used && !e.Life.Over() {
		return f.takeMail(e, first)
	}
	return 0
}

// ready reports whether a message has arrived, in the ring or in the mailbox.
func (e *ep) ready() bool { return e.rx.Ready() || e.mail.used && e.rx.MailReady() }

// takeTurn reports whether the next message may go to the mailbox. While a handler reads messages in
// the ring they must not be acknowledged, as a message in the mailbox would.
func (e *ep) takeTurn() bool {
	return e.tx.TakeOffer() && (e.f.progressDepth == 0 || e.f.mail.taking)
}

// sendMail sends a message of at most ring.MailMax bytes in the mailbox. The caller has called takeTurn.
func (e *ep) sendMail(id uct.AMID, hdr uint64, p []byte) uct.Status {
	c := e.tx.Mail()
	c.SetHeader(hdr)
	c.SetPayload(p)
	fault.At(fault.BeforeMail)
	e.tx.PublishMail(uint8(id), len(p), e.rx.Consumed())
	fault.At(fault.AfterMail)
	e.f.mail.sent = true
	if atomic.LoadUint32(e.armed) != 0 || !e.tx.MailPolled() {
		e.notify()
	}
	return ucs.OK
}
