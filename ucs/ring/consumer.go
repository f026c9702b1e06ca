package ring

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// Consumer is the receiving side of a ring.
//
// Concurrency: one goroutine.
type Consumer struct {
	Position // of the next message

	mail Cell // half of the mailbox

	cellTail *atomic.Uint64
	bulkTail *atomic.Uint64
	polled   *uint32
	waiting  *uint32

	data          []byte // cells, then bulk area
	bulkBase      uint64 // offset of the bulk area in data
	bulkSize      uint64
	bulkDone      uint64 // bulk bytes consumed
	bulkPublished uint64 // bulk bytes published as consumed
	publishAt     uint64 // sequence number from which Release publishes
	publishEvery  uint64
	fence         bool
}

// NewConsumer attaches the receiving side to an area that Init has initialized.
func NewConsumer(area []byte, l Layout) (Consumer, error) {
	if err := l.checkInit(area); err != nil {
		return Consumer{}, err
	}
	data := area[controlBytes:l.Size()]
	return Consumer{
		Position:     Position{cells: cellsOf(data), want: 1, at: CellSize, atMask: uint64(l.Cells)*CellSize - 1},
		cellTail:     atomicUint64At(area, offCellTail),
		bulkTail:     atomicUint64At(area, offBulkTail),
		polled:       uint32At(area, offPolled),
		waiting:      uint32At(area, offWaiting),
		data:         data,
		bulkBase:     uint64(l.Cells) * CellSize,
		bulkSize:     uint64(l.Bulk),
		publishAt:    1 + uint64(l.Cells)/4,
		publishEvery: uint64(l.Cells) / 4,
		mail:         mailboxOf(area, 0),
	}, nil
}

// Data returns the memory to which the offsets of messages refer.
func (c *Consumer) Data() []byte { return c.data }

// Seek advances the consumer to position p, which is one of its own.
func (c *Consumer) Seek(p Position) { c.at, c.want = p.at, p.want }

// ID returns the message id in a cell's first word.
func ID(first uint64) uint8 { return uint8(first >> idShift) }

// Bulk returns offset and length of a payload in the bulk area. It reads each word once
// and checks it. ok is false if the cell holds garbage.
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
	if c.bulkDone += advance; c.bulkDone-c.bulkPublished >= c.bulkSize/8 {
		c.publishAt = 0
	}
	return uint32(c.bulkBase + at), uint32(size), true
}

// Advance moves to the message after the one that Poll found.
func (c *Consumer) Advance() { c.Seek(c.Position.Next()) }

// cell returns the next cell. Advance and the layout check keep it in the area.
func (c *Consumer) cell() Cell { return c.cells.offset(c.at) }

// Prefetch prefetches the next n cells, up to the last cell of the ring, while the
// caller handles a batch. It pays only if the ring holds more messages. In an almost
// empty ring it would take lines from the producer.
func (c *Consumer) Prefetch(n int) {
	at := int(c.at)
	cpu.Prefetch(c.data[at:min(at+n*CellSize, int(c.bulkBase))])
}

// Release returns the memory of all consumed messages to the producer. It publishes once
// per quarter of the cells or eighth of the bulk area and, if the producer waits for room, when
// no message is left. If the producer waits and Release publishes, woke is true: the caller must wake
// the producer if it sleeps.
//
//gcassert:inline
func (c *Consumer) Release() (woke bool) {
	return (c.MustRelease() || c.ProducerWaits()) && c.ReleaseNow()
}

// MustRelease reports whether Release would publish because of what was consumed.
func (c *Consumer) MustRelease() bool { return c.want >= c.publishAt }

// ProducerWaits reports whether Release would publish because the producer waits for room.
func (c *Consumer) ProducerWaits() bool { return atomic.LoadUint32(c.waiting) != 0 }

// ReleaseNow is Release if one of them returned true.
//
//go:noinline
func (c *Consumer) ReleaseNow() (woke bool) {
	if c.want >= c.publishAt {
		c.publish()
	} else if c.Ready() {
		// A producer that sleeps would wake up for the room of a few messages, where it otherwise fills a
		// quarter of the ring. The next calls publish.
		return false
	}
	// This load follows the stores of publish. A producer sets waiting before its last
	// Refresh, so either it sees these stores or this load sees waiting. Its Wait is a
	// full barrier. On this side the barrier is the membarrier of a producer that arms,
	// or that of publish (Fence).
	if atomic.LoadUint32(c.waiting) != 0 {
		c.publish()
		return true
	}
	return false
}

// Discard consumes the messages that have arrived, without reading them, and publishes that. The
// consumer is not used afterwards.
func (c *Consumer) Discard() {
	for n := uint64(0); n <= c.atMask/CellSize && (c.Ready() || c.MailReady()); n++ {
		c.Advance()
	}
	c.publish()
}

// publish publishes what this side has consumed. Its stores pair with the loads in Producer.Refresh.
func (c *Consumer) publish() {
	c.bulkPublished, c.publishAt = c.bulkDone, c.want+c.publishEvery
	cpu.StoreRelease(c.bulkTail, c.bulkDone)
	if c.fence {
		c.cellTail.Store(c.want)
		return
	}
	cpu.StoreRelease(c.cellTail, c.want)
}

// SetFence makes each publication end with a full barrier. It is for a producer that
// cannot issue one in this process by membarrier before it sleeps.
func (c *Consumer) SetFence(on bool) { c.fence = on }

// SetPolled publishes to the producer whether this side polls the ring continuously.
func (c *Consumer) SetPolled(on bool) { atomic.StoreUint32(c.polled, boolToUint32(on)) }

func boolToUint32(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}
