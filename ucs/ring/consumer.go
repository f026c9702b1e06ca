package ring

import (
	"sync/atomic"
	"unsafe"
)

// Consumer is the receiving side. One goroutine owns it.
type Consumer struct {
	cells unsafe.Pointer
	mask  uint64
	want  uint64 // sequence number of the next message

	cellTail *uint64
	bulkTail *uint64
	hot      *uint32
	waiting  *uint32

	data      []byte // cells, then bulk
	bulkBase  uint64 // of the bulk area within data
	bulkSize  uint64
	bulkDone  uint64 // bytes consumed
	bulkSaid  uint64 // of which published
	cellSaid  uint64
	cellEvery uint64
}

// NewConsumer attaches the receiving side to an area that Init has prepared.
func NewConsumer(area []byte, l Layout) (Consumer, error) {
	if err := l.attach(area); err != nil {
		return Consumer{}, err
	}
	data := area[controlBytes:l.Size()]
	return Consumer{
		cells:     base(data),
		mask:      uint64(l.Cells) - 1,
		want:      1,
		cellTail:  plain(area, offCellTail),
		bulkTail:  plain(area, offBulkTail),
		hot:       flag(area, offHot),
		waiting:   flag(area, offWaiting),
		data:      data,
		bulkBase:  uint64(l.Cells) * CellSize,
		bulkSize:  uint64(l.Bulk),
		cellSaid:  1,
		cellEvery: uint64(l.Cells) / 4,
	}, nil
}

// Ready reports whether a message waits: one load.
func (c *Consumer) Ready() bool {
	return uint32(cellAt(c.cells, c.want, c.mask).First()) == uint32(c.want)
}

// Data is the memory that Message's offsets are relative to.
func (c *Consumer) Data() []byte { return c.data }

// Message describes one received message: its payload is Data()[Off:Off+Len].
type Message struct {
	Header   uint64
	Off, Len uint32
	ID       uint8
}

// Next takes the next message into m. more is false when the ring is empty; ok
// is false when the cell holds garbage, which ends the ring's use. The payload
// stays in place until Release.
func (c *Consumer) Next(m *Message) (more, ok bool) {
	w := c.want
	cell := cellAt(c.cells, w, c.mask)
	first := cell.First()
	if uint32(first) != uint32(w) {
		return false, true
	}
	m.Header = cell.Header()
	m.ID = uint8(first >> idShift)
	if first&flagBulk != 0 {
		if !c.nextBulk(cell, m) {
			return false, false
		}
	} else {
		n := uint32(first>>lenShift) & lenMask
		if n > InlineMax {
			return false, false
		}
		m.Off, m.Len = uint32(w&c.mask)*CellSize+payOff, n
	}
	c.want = w + 1
	return true, true
}

// nextBulk reads the place of a bulk message, once, and checks it.
func (c *Consumer) nextBulk(cell Cell, m *Message) bool {
	offLen, advance := cell.bulk()
	off, n := offLen>>32, offLen&seqMask
	if off+n > c.bulkSize || advance > 2*c.bulkSize || advance < n {
		return false
	}
	c.bulkDone += advance
	m.Off, m.Len = uint32(c.bulkBase+off), uint32(n)
	return true
}

// Release gives the memory of all messages taken so far back to the producer.
// It publishes once per quarter of the cells or eighth of the bulk area, and at
// once where the producer waits for room; then woke is true, and a producer
// that sleeps must be woken.
func (c *Consumer) Release() (woke bool) {
	if c.bulkDone-c.bulkSaid >= c.bulkSize/8 {
		c.bulkSaid = c.bulkDone
		storeRelease(c.bulkTail, c.bulkDone)
	}
	if c.want-c.cellSaid >= c.cellEvery {
		c.cellSaid = c.want
		storeRelease(c.cellTail, c.want)
	}
	// After the stores: a producer that says so before its last look either saw
	// them or is seen here (its Wait is a full barrier; a sleeper adds one here).
	if atomic.LoadUint32(c.waiting) != 0 {
		c.releaseAll()
		return true
	}
	return false
}

//go:noinline
func (c *Consumer) releaseAll() {
	c.bulkSaid, c.cellSaid = c.bulkDone, c.want
	storeRelease(c.bulkTail, c.bulkDone)
	storeRelease(c.cellTail, c.want)
}

// Watch tells the producer whether this side polls the ring all the time.
func (c *Consumer) Watch(on bool) { atomic.StoreUint32(c.hot, bit(on)) }

func bit(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}
