package shm

import (
	"errors"
	"slices"
	"time"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// pair is a ring pair: one ring per direction, in memory that both sides map. The
// maker sends in the first ring.
//
// A connection moves from one ring pair to another per direction. The sender puts a
// switch-over marker behind its last message in the old ring, and continues in the new
// one (switchTx). The receiver switches when it reads the marker (followMarker, switchRx). So the
// order of messages is kept, and no message is lost or waits for an agreement. A side
// unmaps a ring pair when neither of its directions uses it (dropPair). Package
// wireup/machine decides when each step happens.
type pair struct {
	id     machine.PairID
	layout ring.Layout
	seg    *shmem.Segment
	tx     ring.Producer // as of the first message, or of the last one
	rx     ring.Consumer
}

// discardUnread consumes what the peer has sent, because this side closes. So the peer knows what
// arrived before.
func (e *ep) discardUnread() {
	for _, p := range e.pairs {
		if p.id == e.rxPair {
			e.rx.Discard()
			continue
		}
		p.rx.Discard()
	}
}

// allConsumed reports whether the peer has consumed all messages of this side.
func (e *ep) allConsumed() bool {
	for _, p := range e.pairs {
		tx := &p.tx
		if p.id == e.txPair {
			tx = &e.tx
		}
		if !tx.Consumed() {
			return false
		}
	}
	return true
}

// ringStride returns the distance of the two rings: a multiple of the cache line.
func ringStride(l ring.Layout) int {
	return (l.Size() + ucs.CacheLine - 1) / ucs.CacheLine * ucs.CacheLine
}

// attach sets tx and rx to the rings in mem. The maker initializes them before.
func (p *pair) attach(mem []byte, maker bool) (err error) {
	n := ringStride(p.layout)
	out, in := mem[:n], mem[n:]
	if !maker {
		out, in = in, out
	} else if err = errors.Join(ring.Init(out, p.layout), ring.Init(in, p.layout)); err != nil {
		return err
	}
	if p.tx, err = ring.NewProducer(out, p.layout); err == nil {
		p.rx, err = ring.NewConsumer(in, p.layout)
	}
	if maker {
		p.rx.ShareMailbox(mem)
	} else {
		p.tx.ShareMailbox(mem)
	}
	return err
}

// makePair creates a ring pair and allocates all its pages. On a machine with several NUMA nodes the peer allocates them,
// in mapPair.
func makePair(l ring.Layout) (*pair, error) {
	seg, err := shmem.Create("goucx-pair", 2*ringStride(l))
	if err != nil {
		return nil, err
	}
	p := &pair{layout: l, seg: seg}
	if mem := seg.Bytes(); !machineNodes().place(mem, ringStride(l), 2*ringStride(l)) {
		err = seg.Populate()
	}
	if err := errors.Join(err, p.attach(seg.Bytes(), true)); err != nil {
		return nil, errors.Join(err, seg.Close())
	}
	return p, nil
}

// mapPair maps a ring pair that the peer made. On success it owns fd.
func mapPair(id machine.PairID, fd int, l ring.Layout) (*pair, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	seg, err := shmem.Map(fd, 2*ringStride(l))
	if err != nil {
		return nil, err
	}
	p := &pair{id: id, layout: l, seg: seg}
	if machineNodes().place(seg.Bytes(), 0, ringStride(l)) {
		err = seg.Populate()
	}
	if err = errors.Join(err, p.attach(seg.Bytes(), false), seg.CloseFD()); err != nil {
		_ = seg.Close()
		return nil, err
	}
	return p, nil
}

// newNullPair returns the placeholder for a connection without a ring pair, in memory of this
// iface. tx is always full and rx always empty.
func newNullPair() (*pair, error) {
	l := ring.Layout{Cells: minCells, Bulk: minBulk}
	p := &pair{layout: l}
	err := p.attach(make([]byte, max(2*ringStride(l), 4096)), true) // an allocation of this size is aligned
	for err == nil && p.tx.Room() {
		p.tx.Advance()
	}
	return p, err
}

// pair returns the ring pair with this id, or nil.
func (e *ep) pair(id machine.PairID) *pair {
	for _, p := range e.pairs {
		if p.id == id {
			return p
		}
	}
	return nil
}

// addPair adds a ring pair to the connection.
func (e *ep) addPair(p *pair) {
	if len(e.pairs) == 0 {
		e.f.mappedConns++
	}
	e.pairs = append(e.pairs, p)
}

// dropPair unmaps a ring pair that this side no longer uses. If tx or rx still points into
// it, dropPair detaches them first.
func (e *ep) dropPair(id machine.PairID) {
	p := e.pair(id)
	if p == nil {
		return
	}
	if e.txPair == id {
		e.detachTx()
	}
	if e.rxPair == id {
		e.detachRx()
	}
	fault.At(fault.Unmap)
	e.pairs = slices.DeleteFunc(e.pairs, func(q *pair) bool { return q == p })
	if len(e.pairs) == 0 {
		e.f.mappedConns--
	}
	if err := p.seg.Close(); err != nil {
		e.f.d.logf("unmap a pair", err)
	}
}

// switchTx switches the sending direction to ring pair id, or detaches it if there is
// none. It puts a switch-over marker into the old ring.
func (e *ep) switchTx(id machine.PairID) {
	if e.txPair != machine.None {
		if old := e.pair(e.txPair); old != nil {
			old.tx = e.tx
		}
		e.tx.Mark(uint64(id))
		e.ringDoorbell()
	}
	e.detachTx()
	if p := e.pair(id); p != nil {
		e.tx, e.txPair = p.tx, id
	}
	e.doorbellTag = uint64(id) << doorbellTagShift
	if e.status != ucs.OK || e.pend.Len() > 0 {
		e.tx.Block()
	}
	if e.pend.Len() > 0 {
		e.f.requestService()
		if e.txPair == machine.None {
			e.requestPair() // pending operations do not retry by themselves
		}
	}
}

// detachTx and detachRx detach tx and rx from their ring pair. They then use the
// rings of nullPair, which are always mapped.
func (e *ep) detachTx() { e.tx, e.txPair = e.f.nullPair.tx, machine.None }

func (e *ep) detachRx() {
	if e.f.mail.ep == e {
		e.f.leaveMailbox()
	}
	if e.HasReceived() {
		e.Add(rxBefore)
	}
	if p := e.pair(e.rxPair); p != nil {
		p.rx = e.rx
	}
	e.rx, e.rxPair = e.f.nullPair.rx, machine.None
	e.f.needPass() // the poll word may be in the ring
}

// HasReceived implements conn.Connection.
func (e *ep) HasReceived() bool { return e.Has(rxBefore) || e.rx.Consumed() > 0 }

// doorbellTagShift is the position of the ring pair's id in a doorbell word. It makes the
// words of successive ring pairs differ: an unchanged word would not be noticed.
const doorbellTagShift = 40

// switchRx switches the receiving direction to ring pair id, or detaches it if there is
// none. Messages sent before need not have a doorbell, so e is queued for recheck.
func (e *ep) switchRx(id machine.PairID) {
	e.detachRx()
	p := e.pair(id)
	if p == nil {
		e.f.demote(e)
		return
	}
	e.rx, e.rxPair = p.rx, id
	e.rx.SetFence(e.needsBarrier)
	if e.hot {
		e.rx.SetPolled(true)
	}
	e.f.promote(e)
	e.f.recheck.Add(e)
	e.f.requestService()
}

// ringCapacity returns the number of messages that all rings of the connection can hold.
func (e *ep) ringCapacity() (n int) {
	for _, p := range e.pairs {
		n += p.layout.Cells
	}
	return n
}

// followMarker handles the switch-over marker in the next cell, whose first word is first.
// Anything else in that cell is garbage and fails the peer.
func (f *iface) followMarker(e *ep, first uint64) {
	next, ok := e.rx.Mark(first)
	if ok && machine.PairID(next) != machine.End && e.sock != nil {
		e.readSocket() // the peer sent the message that agreed on it before
	}
	if !ok || next>>32 != 0 {
		f.stats.Inc(statGarbage)
		f.FailLater(e, conn.PeerFailed("it wrote garbage into its ring"))
		return
	}
	if !e.Life.Over() {
		e.step(machine.Event{Kind: machine.EventMarker, Pair: machine.PairID(next)})
		if e.M.PeerDrained() {
			f.Schedule(e)
		}
	}
}

const (
	// A ring grows after growAfter sends within growWithin were refused for lack of room.
	growAfter  = 16
	growWithin = 100 * time.Millisecond
	// migrateRetryDelay is the time without MIGRATE after a MIGRATE_NAK. The peer lacks
	// memory or descriptors, or has not read all messages in its previous ring pair.
	migrateRetryDelay = 2 * time.Millisecond
)

// noResource records a refused message of n bytes and returns NoResource. It requests a ring
// pair if the connection is suspended or has refused sends often.
//
//go:noinline
func (e *ep) noResource(n int) uct.Status {
	e.f.stats.Inc(statNoResource)
	e.neededRoom = n
	if e.refusals++; e.refusals >= growAfter || e.txPair == machine.None {
		e.requestPair()
	}
	return ucs.NoResource
}

// requestPair makes service check whether the connection needs another ring pair.
func (e *ep) requestPair() {
	f := e.f
	if e.M.State() == machine.StateOpen && e.Add(inPairRequests) {
		f.pairRequests = append(f.pairRequests, e)
		f.requestService()
	}
}

// handleMigrateNak handles MIGRATE_NAK. It retries later if operations are pending.
func (e *ep) handleMigrateNak() {
	e.migrateAfter = ucs.Now().Add(migrateRetryDelay)
	if e.M.TxPair() == machine.None && e.pend.Len() > 0 {
		e.requestPair()
	}
}

// servePairRequests resumes and grows connections that requested a ring pair.
func (f *iface) servePairRequests(now ucs.Time) {
	es := f.pairRequests
	f.pairRequests, f.sparePairRequests = f.sparePairRequests[:0], es
	for _, e := range es {
		again := false
		switch {
		case e.Life.Over() || e.status != ucs.OK:
		case e.M.TxPair() == machine.None && e.M.State() == machine.StateOpen:
			if e.M.Migrating() {
				break // the socket reports the peer's response
			}
			if now >= e.migrateAfter {
				e.proposePair(machine.EventResume, f.layout)
			}
			again = !e.M.Migrating()
		case e.refusals < growAfter:
		case now.Sub(e.refusalsSince) > growWithin: // too few in this time: restart the count
			e.refusals, e.refusalsSince = 0, now
		default:
			e.refusals, e.refusalsSince = 0, now
			if l, ok := e.nextLayout(); ok && now >= e.migrateAfter && e.M.CanMigrate() {
				e.proposePair(machine.EventMigrate, l)
			}
		}
		if again {
			f.pairRequests = append(f.pairRequests, e)
		} else {
			e.Drop(inPairRequests)
		}
	}
	clear(es)
}

// nextLayout returns the geometry to which the connection grows next: twice the size. ok is
// false if the ring has its maximum size.
func (e *ep) nextLayout() (ring.Layout, bool) {
	p := e.pair(e.M.TxPair())
	if p == nil {
		return ring.Layout{}, false
	}
	size := min(2*p.layout.Size(), e.f.maxRingSize)
	l := ring.Fit(size, min(2*p.layout.Cells, maxCells))
	return l, l.Cells > p.layout.Cells && l.MaxBulk() >= p.layout.MaxBulk() && l.Check() == nil
}

// proposePair makes a ring pair with geometry l and passes event k to the machine, which
// sends MIGRATE. If l is too small for the connection's longest message, which the peer may have
// determined, it takes the smallest bulk area that holds one.
func (e *ep) proposePair(k machine.EventKind, l ring.Layout) {
	if l.MaxBulk() < e.maxBulk {
		for l.Bulk = minBulk; l.MaxBulk() < e.maxBulk; {
			l.Bulk += ring.CellSize
		}
	}
	p, err := makePair(l)
	if err != nil {
		e.f.d.logf("make a pair", err)
		e.migrateAfter = ucs.Now().Add(migrateRetryDelay)
		return
	}
	e.newPair = p
	e.step(machine.Event{Kind: k})
	if e.newPair != nil { // the machine does not migrate now
		_ = e.newPair.seg.Close()
		e.newPair = nil
	}
}

// Suspend implements conn.Connection.
func (e *ep) Suspend() {
	e.f.stats.Inc(statSuspends)
	e.step(machine.Event{Kind: machine.EventSuspend})
}
