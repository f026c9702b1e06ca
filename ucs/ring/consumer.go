package ring

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// Consumer is the receiving side. One goroutine owns it.
type Consumer struct {
	cells cells
	mask  uint64
	want  uint64 // sequence number of the next message
	at    uint64 // where its cell begins
	wrap  uint64 // bytes of all cells, less one

	cellTail *uint64
	bulkTail *uint64
	hot      *uint32
	waiting  *uint32

	data      []byte // cells, then bulk
	bulkBase  uint64 // of the bulk area within data
	bulkSize  uint64
	bulkDone  uint64 // bytes consumed
	bulkSaid  uint64 // of which published
	due       uint64 // the sequence number from which Release publishes
	cellEvery uint64
	fence     bool
}

// NewConsumer attaches the receiving side to an area that Init has prepared.
func NewConsumer(area []byte, l Layout) (Consumer, error) {
	if err := l.attach(area); err != nil {
		return Consumer{}, err
	}
	data := area[controlBytes:l.Size()]
	return Consumer{
		cells:     cellsOf(data),
		mask:      uint64(l.Cells) - 1,
		want:      1,
		at:        CellSize & (uint64(l.Cells)*CellSize - 1),
		wrap:      uint64(l.Cells)*CellSize - 1,
		cellTail:  plain(area, offCellTail),
		bulkTail:  plain(area, offBulkTail),
		hot:       flag(area, offHot),
		waiting:   flag(area, offWaiting),
		data:      data,
		bulkBase:  uint64(l.Cells) * CellSize,
		bulkSize:  uint64(l.Bulk),
		due:       1 + uint64(l.Cells)/4,
		cellEvery: uint64(l.Cells) / 4,
	}, nil
}

// Ready reports whether a message waits: one load.
func (c *Consumer) Ready() bool {
	return uint32(c.cell().First()) == uint32(c.want)
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
// stays in place until Release. Loops on a hot path use the parts that it is
// made of: Poll, Header, Inline or Bulk, Advance.
func (c *Consumer) Next(m *Message) (more, ok bool) {
	first, more := c.Poll()
	if !more {
		return false, true
	}
	m.Header, m.ID = c.Header(), ID(first)
	if m.Off, m.Len, ok = c.Inline(first); !ok {
		if m.Off, m.Len, ok = c.Bulk(first); !ok {
			return false, false
		}
	}
	c.Advance()
	return true, true
}

// Poll gives the first word of the next message's cell if it has come.
func (c *Consumer) Poll() (first uint64, more bool) {
	first = c.cell().First()
	return first, uint32(first) == uint32(c.want)
}

// Cursor goes ahead of a Consumer over messages that have come, in registers: a
// loop over a batch takes one, ends it with Seek, and calls nothing of the
// Consumer meanwhile.
type Cursor struct {
	cells cells
	mask  uint64
	want  uint64
}

// Cursor begins at the next message.
func (c *Consumer) Cursor() Cursor { return Cursor{c.cells, c.mask, c.want} }

// Seek counts the messages that u has passed.
func (c *Consumer) Seek(u Cursor) {
	c.want = u.want
	c.at = u.want & c.mask * CellSize
}

// Poll is Consumer.Poll at the cursor.
func (u Cursor) Poll() (first uint64, more bool) {
	first = u.cells.at(u.want, u.mask).First()
	return first, uint32(first) == uint32(u.want)
}

// Header is Consumer.Header at the cursor.
func (u Cursor) Header() uint64 { return u.cells.at(u.want, u.mask).Header() }

// Inline is Consumer.Inline at the cursor.
func (u Cursor) Inline(first uint64) (off, n uint32, ok bool) {
	n = uint32(first >> lenShift) // length and flags: whatever is set makes it too long
	return uint32(u.want&u.mask)*CellSize + payOff, n, n <= InlineMax
}

// Next is the cursor behind the message.
func (u Cursor) Next() Cursor {
	u.want++
	return u
}

// ID is the message's id.
func ID(first uint64) uint8 { return uint8(first >> idShift) }

// Header is the header of the message that Poll found.
func (c *Consumer) Header() uint64 { return c.cell().Header() }

// Inline gives the place of a payload that travelled in the cell. ok is false
// where it did not: see Bulk.
func (c *Consumer) Inline(first uint64) (off, n uint32, ok bool) {
	n = uint32(first >> lenShift) // length and flags: whatever is set makes it too long
	return uint32(c.at) + payOff, n, n <= InlineMax
}

// Bulk gives the place of a payload in the bulk area, read once and checked. ok
// is false where the cell holds garbage.
//
//go:noinline
func (c *Consumer) Bulk(first uint64) (off, n uint32, ok bool) {
	if first&flagBulk == 0 {
		return 0, 0, false
	}
	offLen, advance := c.cell().bulk()
	at, size := offLen>>32, offLen&seqMask
	if at+size > c.bulkSize || advance > 2*c.bulkSize || advance < size {
		return 0, 0, false
	}
	if c.bulkDone += advance; c.bulkDone-c.bulkSaid >= c.bulkSize/8 {
		c.due = 0
	}
	return uint32(c.bulkBase + at), uint32(size), true
}

// Advance counts the message that Poll found.
func (c *Consumer) Advance() {
	c.want++
	c.at = (c.at + CellSize) & c.wrap
}

// cell is the next message's: Advance and the layout check keep it in the area.
func (c *Consumer) cell() Cell { return c.cells.offset(c.at) }

// Prefetch asks for the cells of the next n messages, as far as the end of the
// cells, while the ones taken are being handled. For a ring that is known to
// hold more: in one that is nearly empty it would take lines from the producer.
func (c *Consumer) Prefetch(n int) {
	at := int(c.at)
	cpu.Prefetch(c.data[at:min(at+n*CellSize, int(c.bulkBase))])
}

// Release gives the memory of all messages taken so far back to the producer.
// It publishes once per quarter of the cells or eighth of the bulk area, and at
// once where the producer waits for room; then woke is true, and a producer
// that sleeps must be woken.
//
//gcassert:inline
func (c *Consumer) Release() (woke bool) {
	return (c.want >= c.due || atomic.LoadUint32(c.waiting) != 0) && c.releaseSlow()
}

//go:noinline
func (c *Consumer) releaseSlow() bool {
	if c.want >= c.due {
		c.publish()
	}
	// After the stores: a producer that says so before its last look either saw
	// them or is seen here. Its Wait is a full barrier; on this side one that is
	// about to sleep puts it (membarrier), or else publish (Fence).
	if atomic.LoadUint32(c.waiting) != 0 {
		c.publish()
		return true
	}
	return false
}

func (c *Consumer) publish() {
	c.bulkSaid, c.due = c.bulkDone, c.want+c.cellEvery
	storeRelease(c.bulkTail, c.bulkDone)
	if c.fence {
		atomic.StoreUint64(c.cellTail, c.want)
		return
	}
	storeRelease(c.cellTail, c.want)
}

// Fence has a full barrier follow each publishing, for a producer that sleeps
// but cannot put one here itself.
func (c *Consumer) Fence(on bool) { c.fence = on }

// Watch tells the producer whether this side polls the ring all the time.
func (c *Consumer) Watch(on bool) { atomic.StoreUint32(c.hot, bit(on)) }

func bit(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}
