package ring

import "sync/atomic"

// First builds the first word of a cell: its sequence number, the message id
// and the inline length.
func First(seq uint64, id uint8, n int) uint64 {
	return seq&seqMask | uint64(id)<<idShift | uint64(n)<<lenShift
}

// Producer is the sending side. One goroutine owns it.
//
// limit is the only test of the fast path: the sequence number up to which
// cells are known to be free, 0 while the owner has blocked the ring.
type Producer struct {
	cells   cells
	mask    uint64
	head    uint64 // sequence number of the next message
	limit   uint64
	blocked bool

	size     uint64
	cellTail *uint64 // written by the consumer
	bulkTail *uint64
	hot      *uint32
	waiting  *uint32

	bulk     []byte
	bulkPos  uint64 // where the next bulk message begins
	bulkHead uint64 // bytes given out since the start, gaps included
	bulkSeen uint64 // bytes known to be consumed

	resPos, resGap uint64 // the open reservation: its place, and what it skipped
}

// NewProducer attaches the sending side to an area that Init has prepared.
func NewProducer(area []byte, l Layout) (Producer, error) {
	if err := l.attach(area); err != nil {
		return Producer{}, err
	}
	data := area[controlBytes:l.Size()]
	p := Producer{
		cells:    cellsOf(data),
		mask:     uint64(l.Cells) - 1,
		head:     1,                   // 0 would look like an empty cell
		size:     uint64(l.Cells) - 1, // one is kept for the marker
		cellTail: plain(area, offCellTail),
		bulkTail: plain(area, offBulkTail),
		hot:      flag(area, offHot),
		waiting:  flag(area, offWaiting),
		bulk:     data[l.Cells*CellSize:],
	}
	p.limit = p.head + p.size
	return p, nil
}

// Room reports whether a cell is known to be free.
func (p *Producer) Room() bool { return p.head < p.limit }

// Head is the sequence number of the next message.
func (p *Producer) Head() uint64 { return p.head }

// Cell is the cell of the next message; valid while Room.
func (p *Producer) Cell() Cell { return p.cells.at(p.head, p.mask) }

// Advance counts the message that was published at Cell.
func (p *Producer) Advance() { p.head++ }

// Watched reports whether the consumer polls this ring all the time, so that it
// needs no hint of new messages.
func (p *Producer) Watched() bool { return atomic.LoadUint32(p.hot) != 0 }

// Block makes Room answer false until Unblock, whatever the consumer does.
func (p *Producer) Block() { p.blocked, p.limit = true, 0 }

// Unblock ends Block; Room holds again after Refresh.
func (p *Producer) Unblock() { p.blocked = false }

// Wait tells the consumer whether this side waits for room, so that it
// publishes what it consumed at once and wakes a sleeper.
func (p *Producer) Wait(on bool) { atomic.StoreUint32(p.waiting, bit(on)) }

// Refresh reads how far the consumer came. It reports false on a value that no
// honest consumer writes.
func (p *Producer) Refresh() bool {
	t := max(atomic.LoadUint64(p.cellTail), 1)
	if t > p.head || p.head-t > p.size {
		return false
	}
	if !p.blocked {
		p.limit = t + p.size
	}
	b := atomic.LoadUint64(p.bulkTail)
	if b > p.bulkHead || b < p.bulkSeen {
		return false
	}
	p.bulkSeen = b
	return true
}

// Peek reports whether a message of n bytes would find room by what the
// consumer says now, also while blocked; it changes nothing.
func (p *Producer) Peek(n int) bool {
	q := *p
	q.blocked = false
	return q.Refresh() && q.Fits(n)
}

// Reserve gives n bytes of the bulk area for the next message. ok is false
// when there is no room by what Refresh last saw. Room must hold. A second
// Reserve replaces the first.
func (p *Producer) Reserve(n int) (b []byte, ok bool) {
	pos, gap, ok := p.place(lines(n))
	if !ok {
		return nil, false
	}
	p.resPos, p.resGap = pos, gap
	return p.bulk[pos : pos+uint64(n) : pos+uint64(n)], true
}

// place finds room for need bytes in one piece: at pos, after skipping gap.
func (p *Producer) place(need uint64) (pos, gap uint64, ok bool) {
	size := uint64(len(p.bulk))
	pos = p.bulkPos
	if pos+need > size {
		gap, pos = size-pos, 0
	}
	return pos, gap, p.bulkHead+gap+need-p.bulkSeen <= size
}

// Fits reports whether a message of n bytes would find room now.
func (p *Producer) Fits(n int) bool {
	_, _, ok := p.place(lines(n))
	return p.Room() && (n <= InlineMax || ok)
}

// Commit publishes the first n bytes of the reservation as message id.
func (p *Producer) Commit(id uint8, header uint64, n int) {
	need := lines(n)
	advance := p.resGap + need
	c := p.Cell()
	c.SetHeader(header)
	c.setBulk(p.resPos, uint64(n), advance)
	c.Publish(First(p.head, id, 0) | flagBulk)
	p.head++
	p.bulkHead += advance
	p.bulkPos = p.resPos + need
}

// lines rounds n bytes up to whole cache lines.
func lines(n int) uint64 { return (uint64(n) + CellSize - 1) &^ (CellSize - 1) }

// OwnNext takes the cache lines where a next bulk message of n bytes would lie,
// so that the copy into them does not wait for the consumer's core. Worth it up
// to about 2 KB.
func (p *Producer) OwnNext(n int) {
	need, pos := lines(n), p.bulkPos
	if pos+need > uint64(len(p.bulk)) {
		return // it would begin at 0, which may be unread
	}
	if p.bulkHead+need-p.bulkSeen > uint64(len(p.bulk)) {
		return
	}
	touch(p.bulk[pos : pos+need])
}

// OwnCell takes the line of the cell after the next. Never the next one: the
// consumer polls it.
func (p *Producer) OwnCell() {
	if p.head+1 < p.limit {
		p.cells.at(p.head+1, p.mask).own()
	}
}
