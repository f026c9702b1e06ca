package ring

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// First returns a cell's first word: sequence number, message id and inline length.
func First(seq uint64, id uint8, n int) uint64 {
	return seq&seqMask | uint64(id)<<idShift | uint64(n)<<lenShift
}

// Producer is the sending side of a ring. The fast path tests only limit: the sequence number up to which it may send
// without a call of Full or Refresh, or 0 while the owner blocks the ring.
//
// Concurrency: one goroutine.
type Producer struct {
	cells   cells
	mask    uint64
	head    uint64 // sequence number of the next message
	limit   uint64
	free    uint64 // sequence number up to which cells are known to be free
	blocked bool

	mail    Cell   // half of the mailbox
	mailSeq uint64 // sequence number of the last message there; 0: none
	acked   uint64 // head when the consumer had acknowledged all messages in the mailbox
	offered uint64 // head when OfferMail was called; 0: no offer

	size     uint64
	cellTail *atomic.Uint64 // written by the consumer
	bulkTail *atomic.Uint64
	polled   *uint32
	waiting  *uint32

	bulk     []byte
	bulkPos  uint64 // offset of the next bulk message
	bulkHead uint64 // bytes reserved since the start, gaps included
	bulkSeen uint64 // bytes known to be consumed

	resPos, resGap uint64 // the open reservation: its offset, and the bytes skipped before it
}

// NewProducer attaches the sending side to an area that Init has initialized.
func NewProducer(area []byte, l Layout) (Producer, error) {
	if err := l.checkInit(area); err != nil {
		return Producer{}, err
	}
	data := area[controlBytes:l.Size()]
	p := Producer{
		cells:    cellsOf(data),
		mask:     uint64(l.Cells) - 1,
		head:     1,                   // 0 would match an empty cell
		size:     uint64(l.Cells) - 1, // one cell is reserved for the marker
		cellTail: atomicUint64At(area, offCellTail),
		bulkTail: atomicUint64At(area, offBulkTail),
		polled:   uint32At(area, offPolled),
		waiting:  uint32At(area, offWaiting),
		bulk:     data[l.Cells*CellSize:],
		mail:     mailboxOf(area, 0),
	}
	p.allFree()
	return p, nil
}

// allFree notes that the consumer has taken all messages.
func (p *Producer) allFree() { p.free, p.limit = p.head+p.size, p.head+p.size }

// Room reports whether the next message may be sent: a cell is known to be free. If not, Full may
// find one.
func (p *Producer) Room() bool { return p.head < p.limit }

// batchCells is the number of cells whose lines Full fetches at a time. It divides the number of cells.
const batchCells = 8

// Full is for a message of at most InlineMax bytes that finds no Room. It returns true if Room remains false: the ring
// is full, also after a Refresh, or blocked, or an offer of the mailbox is open. Otherwise it makes Room true for up to
// batchCells messages, whose lines it fetches for write. Some processors fetch only the lines of the next few stores
// (Zen), and without this, one cell at a time: a stream of 8-byte messages then takes 142 instead of 30 ns per message
// between far cores, and 36 instead of 15 between near ones. PREFETCHW does not fetch a line that this core has written
// and another one has read since. Longer messages gain nothing: the stores of their bytes fetch the line of the cell, too.
//
//go:noinline
func (p *Producer) Full() bool {
	head := p.head
	if head != p.limit || head >= p.free && (!p.Refresh() || head == p.free) {
		return true
	}
	if p.limit = head + batchCells; head%batchCells == 0 && p.limit <= p.free {
		p.cells.touchBatch(head, p.mask)
		return false
	}
	p.limit = min(p.limit&^(batchCells-1), p.free)
	p.cells.touch(head, p.limit-head, p.mask)
	return false
}

// Head returns the sequence number of the next message.
func (p *Producer) Head() uint64 { return p.head }

// Cell returns the cell of the next message. It is valid only while Room is true.
func (p *Producer) Cell() Cell { return p.cells.at(p.head, p.mask) }

// Advance moves to the next cell after a message was published at Cell.
func (p *Producer) Advance() { p.head++ }

// Publish publishes the message of n bytes in c, which is Cell, and moves to the next cell.
func (p *Producer) Publish(c Cell, id uint8, n int) {
	c.Publish(First(p.head, id, n))
	p.head++
}

// Polled reports whether the consumer polls this ring continuously. If so, messages
// need no doorbell.
func (p *Producer) Polled() bool { return p.PolledAbove(0) }

// PolledAbove is Polled if n is 0. It returns false if n is PolledMax or more.
func (p *Producer) PolledAbove(n uint32) bool { return atomic.LoadUint32(p.polled) > n }

// Block makes Room return false until Unblock.
func (p *Producer) Block() { p.blocked, p.limit = true, 0 }

// Unblock ends Block. Room returns true only after a Refresh that finds room.
func (p *Producer) Unblock() { p.blocked = false }

// SetWaiting publishes to the consumer whether this side waits for room. While it waits, the consumer
// wakes it when a quarter of the ring is free, or when no message is left. Wait is a full
// barrier; it pairs with the load in Consumer.Release.
func (p *Producer) SetWaiting(on bool) { atomic.StoreUint32(p.waiting, boolToUint32(on)) }

// Refresh reads the consumer's position. It returns false if the value is impossible.
func (p *Producer) Refresh() bool {
	t := p.cellTail.Load()
	if t > p.head {
		return false
	}
	if t = max(t, p.acked, 1); p.head-t > p.size {
		return false
	}
	if p.mailSeq != 0 && p.head-p.mailSeq > staleAfter {
		p.clearMail()
	}
	if p.free = t + p.size; !p.blocked {
		p.limit = p.free
	}
	b := p.bulkTail.Load()
	if b > p.bulkHead || b < p.bulkSeen {
		return false
	}
	p.bulkSeen = b
	return true
}

// Consumed reports whether the consumer has published that it has consumed all messages.
func (p *Producer) Consumed() bool {
	return p.head == 1 || p.cellTail.Load() == p.head
}

// WouldFit reports whether a message of n bytes would find room at the consumer's current
// position, even if the ring is blocked. It changes nothing.
func (p *Producer) WouldFit(n int) bool {
	q := *p
	q.blocked = false
	return q.Refresh() && q.Fits(n)
}

// Reserve returns n bytes of the bulk area for the next message. ok is false if there is
// no room at the position of the last Refresh. The caller ensures Room. A second Reserve
// replaces the first.
func (p *Producer) Reserve(n int) (b []byte, ok bool) {
	pos, gap, ok := p.findBulk(lines(n))
	if !ok {
		return nil, false
	}
	p.resPos, p.resGap = pos, gap
	return p.bulk[pos : pos+uint64(n) : pos+uint64(n)], true
}

// findBulk finds need contiguous bytes: at pos, after gap skipped bytes.
func (p *Producer) findBulk(need uint64) (pos, gap uint64, ok bool) {
	size := uint64(len(p.bulk))
	pos = p.bulkPos
	if pos+need > size {
		gap, pos = size-pos, 0
	}
	return pos, gap, p.bulkHead+gap+need-p.bulkSeen <= size
}

// Fits reports whether a message of n bytes fits at the position of the last Refresh.
func (p *Producer) Fits(n int) bool {
	_, _, ok := p.findBulk(lines(n))
	return p.Room() && (n <= InlineMax || ok)
}

// Commit publishes the first n bytes of the reservation as a message with this id. With demote, it moves their lines to
// the cache that cores share (cpu.Demote): a consumer that waits for the message reads it sooner so. In a stream of
// messages that costs more than it gains, because the producer has to fetch the lines for a later message.
func (p *Producer) Commit(id uint8, header uint64, n int, demote bool) {
	need := lines(n)
	advance := p.resGap + need
	c := p.Cell()
	c.SetHeader(header)
	c.setBulk(p.resPos, uint64(n), advance)
	if demote { // after the first stores to the cell, whose line takes longest
		cpu.Demote(p.bulk[p.resPos : p.resPos+need])
	}
	c.Publish(First(p.head, id, 0) | flagBulk)
	p.head++
	p.bulkHead += advance
	p.bulkPos = p.resPos + need
}

// lines rounds n bytes up to whole cache lines.
func lines(n int) uint64 { return (uint64(n) + CellSize - 1) &^ (CellSize - 1) }

// PrefetchWrite prefetches for write the lines of a next bulk message of n bytes, so that its
// copy does not wait for the consumer's core. It pays up to about 2 KB.
func (p *Producer) PrefetchWrite(n int) {
	need, pos := lines(n), p.bulkPos
	if pos+need > uint64(len(p.bulk)) {
		return // it would begin at offset 0, which may hold an unread message
	}
	if p.bulkHead+need-p.bulkSeen > uint64(len(p.bulk)) {
		return
	}
	storeLines(p.bulk[pos : pos+need])
}
