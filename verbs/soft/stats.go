package soft

import (
	"reflect"
	"sync/atomic"

	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
)

// counter is one of a device's counters.
type counter int

const (
	cntTxPackets counter = iota
	cntRxPackets
	cntTxBytes // payload
	cntRxBytes
	cntAcks
	cntNaks
	cntRNRNaks
	cntRetransmits
	cntTimeouts
	cntDuplicates
	cntOutOfSequence
	cntDroppedICRC
	cntDroppedQPN
	cntDroppedPKey
	cntDroppedQKey
	cntDroppedSource
	cntDroppedShort
	cntDroppedLong
	cntDroppedOpcode
	cntDroppedInbox
	cntDroppedMessage
	cntPosts
	cntDoorbells
	cntBlueFlames
	cntWQEs
	cntWQEFetches
	cntPayloadFetches
	cntCQEs
	cntLocks
	cntCQLocks // the part of cntLocks that is of completion queues
	numCounters
)

var counterNames = [numCounters]string{
	"tx_packets", "rx_packets", "tx_bytes", "rx_bytes", "acks", "naks", "rnr_naks", "retransmits", "timeouts",
	"duplicates", "out_of_sequence", "dropped_icrc", "dropped_qpn", "dropped_pkey", "dropped_qkey",
	"dropped_source", "dropped_short", "dropped_long", "dropped_opcode", "dropped_inbox", "dropped_message",
	"posts", "doorbells", "blueflames", "wqes", "wqe_fetches", "payload_fetches", "cqes", "locks", "cq_locks",
}

// counts are counters with one writer at a time: those of a queue pair are written by
// its owner. Any goroutine may read them.
type counts [numCounters]uint64

func (c *counts) add(k counter, n uint64) { count(&c[k], n) }

// addAll adds the counters of o.
func (c *counts) addAll(o *counts) {
	for k := range o {
		count(&c[k], atomic.LoadUint64(&o[k]))
	}
}

// sendCounts are the counters of a send queue. The holder of the posters' lock writes
// them.
type sendCounts struct {
	posts, wqes, fetches  uint64
	doorbells, blueFlames uint64 // by the rule of Config.Adapter; 0 without it
	ring                  uint64 // slots of the ring
}

// fetchOps are the operations whose payload the device reads.
const fetchOps = 1<<verbs.OpWrite | 1<<verbs.OpWriteImm | 1<<verbs.OpSend | 1<<verbs.OpSendImm | 1<<verbs.OpSendInv

// post counts a post of n work requests.
func (c *sendCounts) post(n int) {
	count(&c.posts, 1)
	count(&c.wqes, uint64(n))
}

// addSends adds the counters of the send queue to sum. Without an adapter each post counts
// as one doorbell, however long its list is.
func (q *qp) addSends(sum *counts) {
	c := &q.sq.counts
	posts, wqes := atomic.LoadUint64(&c.posts), atomic.LoadUint64(&c.wqes)
	doorbells, blueFlames := posts, uint64(0)
	if q.uuar != nil {
		doorbells, blueFlames = atomic.LoadUint64(&c.doorbells), atomic.LoadUint64(&c.blueFlames)
	}
	sum.add(cntPosts, posts)
	sum.add(cntDoorbells, doorbells)
	sum.add(cntBlueFlames, blueFlames)
	sum.add(cntWQEs, wqes)
	sum.add(cntWQEFetches, wqes-blueFlames)
	sum.add(cntPayloadFetches, atomic.LoadUint64(&c.fetches))
	if q.postLock != 0 {
		sum.add(cntLocks, posts)
	}
}

// Stats returns the current sums: "device" has the traffic counters, "objects" the
// number of open objects, "bytes" the memory that they use. A UDP device also has
// "udp", and one with Config.Adapter those of uars.addTo.
func (d *device) Stats() *stats.Group {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum := d.closedCounts
	for _, e := range *d.engines.Load() {
		sum.addAll(&e.counts)
	}
	d.qps.each(func(q *qp) {
		sum.addAll(&q.counts)
		q.rq.addTo(&sum)
		q.addSends(&sum)
	})
	for _, s := range d.srqs.all {
		s.addTo(&sum)
	}
	for _, c := range d.cqs.all {
		sum.add(cntLocks, c.lockCount())
		sum.add(cntCQLocks, c.lockCount())
	}
	sum.add(cntLocks, d.uars.locks())
	// Open objects, and the device memory that they use with what their rings have grown
	// to. Registered memory is the program's and not counted.
	var made, bytes [objects.NumKinds]uint64
	for k, n := range d.open.Open() {
		made[k] = uint64(n)
		bytes[k] = uint64(n) * sizes[k]
	}
	for _, e := range (*d.engines.Load())[1:] {
		bytes[objects.TD] += e.bytes()
	}
	for _, c := range d.cqs.all {
		bytes[objects.CQ] += c.bytes()
	}
	for _, s := range d.srqs.all {
		bytes[objects.SRQ] += s.bytes()
	}
	d.qps.each(func(q *qp) {
		bytes[objects.QP] += q.rq.bytes() + atomic.LoadUint64(&q.sq.counts.ring)*(sizeOf[wqe]()+uint64(q.sq.longSlot))
	})
	g := new(stats.Group) // an empty group accepts any prefix
	_ = g.Add("device", setOf(counterNames[:], sum[:]))
	_ = g.Add("objects", setOf(objects.Names[:], made[:]))
	_ = g.Add("bytes", setOf(objects.Names[:], bytes[:]))
	if d.udp != nil {
		_ = g.Add("udp", udp.CountsOf(d.allSockets()))
	}
	d.uars.addTo(g, d)
	return g
}

func setOf(names []string, values []uint64) *stats.Set {
	s := stats.NewSet(names)
	for i, v := range values {
		s.Add(i, v)
	}
	return s
}

// sizes are the bytes of an object without its rings. Keys and handles also have a
// table entry with a version.
var sizes = [objects.NumKinds]uint64{
	objects.PD:      sizeOf[pd](),
	objects.TD:      sizeOf[td](),
	objects.MR:      sizeOf[mr]() + sizeOf[*mr]() + 1,
	objects.CQ:      sizeOf[cq](),
	objects.Channel: sizeOf[compChannel](),
	objects.QP:      sizeOf[qp]() + 3*sizeOf[*qp](), // the qpTable is half full; lookers
	objects.SRQ:     sizeOf[srq](),
	objects.AH:      sizeOf[ah]() + sizeOf[*ah]() + 1,
}

func sizeOf[T any]() uint64 { return uint64(reflect.TypeFor[T]().Size()) }
