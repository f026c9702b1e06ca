package ring

import "sync/atomic"

// A mailbox is one cache line for a pair of rings of opposite directions. Each side writes one
// half of it, laid out as a cell with a payload of at most MailMax bytes. In the last 16 bits of its
// first word is the number of messages that the sender has consumed in the other direction.
//
//	line: [ half of one side 32 B | half of the other 32 B ]
//	half: [ seq u32, id u8, len u8, consumed u16 | header u64 | payload 16 B ]
//
// A message in the mailbox takes the next sequence number of its ring, and the cell of that number stays
// unused. So the two places have one order: the consumer takes the message with the sequence
// number that it expects, from wherever it is.
//
// It pays for request and reply. A cell passes from core to core twice, once to the consumer that polls
// it, and once back to the producer. The line of a mailbox returns with the reply.
//
// Invariant of reuse: a producer overwrites its half only after the consumer has acknowledged the
// message in it: by the count in its own half, or by its position in the ring (Producer.mailFree). The
// consumer copies a message before it acknowledges it.
//
// Sequence numbers wrap after 2³² messages. So a producer that has not written its half for a while, or
// skips a cell, replaces the old number there (staleAfter).

const (
	// MailboxSize is the size of a mailbox in bytes: a cache line.
	MailboxSize = 64
	// MailMax is the maximum payload in a mailbox, in bytes.
	MailMax = 16

	// PolledMax is the largest value of a ring's polled word.
	PolledMax = polledRing | polledMail

	mailHalf     = MailboxSize / 2
	offMailbox   = 320 // in the control block
	ackShift     = 48
	ackMask      = 1<<16 - 1
	polledRing   = 1 // bits of the polled word
	polledMail   = 2
	staleAfter   = 1 << 20
	neverMatches = 1 << 31 // distance of a sequence number that is not reached before it is replaced
)

// ShareMailbox makes the producer use the second half of the mailbox of the opposite ring, whose area is given. A
// ring on its own uses the first half of its own mailbox.
func (p *Producer) ShareMailbox(area []byte) { p.mail = mailboxOf(area, 1) }

// ShareMailbox makes the consumer use that half.
func (c *Consumer) ShareMailbox(area []byte) { c.mail = mailboxOf(area, 1) }

// mailboxOf returns half k of the mailbox in the area.
func mailboxOf(area []byte, k int) Cell { return cellOf(area[offMailbox+k*mailHalf:][:mailHalf]) }

// OfferMail makes Room return false until TakeOffer: the next message may go to the mailbox. It does nothing if the
// consumer has not acknowledged the last message there.
func (p *Producer) OfferMail() {
	if !p.blocked && p.mailFree() {
		p.offered, p.limit = p.head, 0
	}
}

// mailFree reports whether this half of the mailbox may be overwritten.
func (p *Producer) mailFree() bool {
	return p.mailSeq < p.acked || p.mailSeq == 0 || p.mailSeq < p.cellTail.Load()
}

// TakeOffer ends an offer. It reports whether the next message may go to the mailbox: nothing was sent
// since the offer, the ring has room for it, and the consumer polls the mailbox.
func (p *Producer) TakeOffer() bool {
	taken := p.offered == p.head
	p.offered = 0
	if p.limit == 0 && !p.blocked {
		if p.limit = p.free; p.acked == p.head {
			p.allFree()
		}
	}
	return taken && p.Room() && atomic.LoadUint32(p.polled)&polledMail != 0
}

// Offered reports whether there was an OfferMail without a TakeOffer after it.
func (p *Producer) Offered() bool { return p.offered != 0 }

// Mail returns this half of the mailbox, for the next message. The caller stores header and payload,
// and calls PublishMail.
func (p *Producer) Mail() Cell { return p.mail }

// PublishMail publishes a message of n bytes in the mailbox. consumed is the number of messages that were
// consumed in the other direction (Consumer.Consumed), which this acknowledges.
func (p *Producer) PublishMail(id uint8, n int, consumed uint64) {
	if p.head&(staleAfter-1) <= p.mask {
		p.Cell().Publish((p.head + neverMatches) & seqMask)
	}
	p.mail.Publish(First(p.head, id, n) | consumed<<ackShift)
	p.mailSeq = p.head
	p.head++
}

// clearMail replaces the sequence number of the last message in the mailbox.
func (p *Producer) clearMail() {
	p.mail.Publish((p.head + neverMatches) & seqMask)
	p.mailSeq = p.head - 1
}

// MailPolled reports whether the consumer polls the mailbox continuously.
func (p *Producer) MailPolled() bool { return atomic.LoadUint32(p.polled)&polledMail != 0 }

// Acknowledge handles the acknowledgement in the first word of a message in the mailbox. It reports whether
// the consumer has taken all messages.
func (p *Producer) Acknowledge(first uint64) bool {
	if first>>ackShift != (p.head-1)&ackMask {
		return false
	}
	p.acked = p.head
	return true
}

// PollMail returns the first word of the mailbox, and whether the next message is there.
func (c *Consumer) PollMail() (first uint64, more bool) {
	first = c.mail.First()
	return first, uint32(first) == uint32(c.want)
}

// MailReady reports whether the next message is in the mailbox.
func (c *Consumer) MailReady() bool {
	_, more := c.PollMail()
	return more
}

// TakeMail consumes the message in the mailbox and copies its payload to b; first is the word that PollMail
// returned. ok is false if the mailbox holds garbage.
func (c *Consumer) TakeMail(first uint64, b *[MailMax]byte) (header uint64, n uint32, ok bool) {
	if n = uint32(first>>lenShift) & lenMask; n > MailMax {
		return 0, 0, false
	}
	header = c.mail.Header()
	c.mail.copyMail(b)
	c.Advance()
	return header, n, true
}

// SetMailPolled publishes to the producer whether this side polls the mailbox, beside the ring.
func (c *Consumer) SetMailPolled(on bool) {
	v := uint32(polledRing)
	if on {
		v |= polledMail
	}
	atomic.StoreUint32(c.polled, v)
}
