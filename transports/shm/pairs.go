package shm

import (
	"errors"
	"slices"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/wireup/machine"
)

// pair is two rings, one of each direction, in memory that both sides map. Who
// made it sends in the first.
type pair struct {
	id     machine.PairID
	layout ring.Layout
	seg    *shmem.Segment
}

// pairSize is the size of a pair's segment: a ring of each direction.
func pairSize(l ring.Layout) int { return 2 * ringStride(l) }

// ringStride is the distance of the two rings: whole lines.
func ringStride(l ring.Layout) int {
	return (l.Size() + ucs.CacheLine - 1) / ucs.CacheLine * ucs.CacheLine
}

// makePair makes a pair of this side's own; its memory is taken now.
func makePair(l ring.Layout) (*pair, error) {
	seg, err := shmem.Create("goucx-pair", pairSize(l))
	if err != nil {
		return nil, err
	}
	n := ringStride(l)
	err = errors.Join(seg.Populate(), ring.Init(seg.Bytes()[:n], l), ring.Init(seg.Bytes()[n:], l))
	if err != nil {
		return nil, errors.Join(err, seg.Close())
	}
	return &pair{layout: l, seg: seg}, nil
}

// mapPair maps a pair that the peer made. On success it owns fd.
func mapPair(id machine.PairID, fd int, l ring.Layout) (*pair, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	seg, err := shmem.Map(fd, pairSize(l))
	if err != nil {
		return nil, err
	}
	p := &pair{id: id, layout: l, seg: seg}
	_, err = p.producer()
	_, err2 := p.consumer()
	if err = errors.Join(err, err2, seg.CloseFD()); err != nil {
		_ = seg.Close()
		return nil, err
	}
	return p, nil
}

func (p *pair) rings() (out, in []byte) {
	n, m := ringStride(p.layout), p.seg.Bytes()
	if p.id.Mine() {
		return m[:n], m[n:]
	}
	return m[n:], m[:n]
}

func (p *pair) producer() (ring.Producer, error) {
	out, _ := p.rings()
	return ring.NewProducer(out, p.layout)
}

func (p *pair) consumer() (ring.Consumer, error) {
	_, in := p.rings()
	return ring.NewConsumer(in, p.layout)
}

// nowhere is what a connection sends in and reads while it has no pair: a ring
// of this iface's own that is always full, and always empty.
type nowhere struct {
	tx ring.Producer
	rx ring.Consumer
}

func newNowhere() (w nowhere, err error) {
	l := ring.Layout{Cells: minCells, Bulk: minBulk}
	area := make([]byte, max(ringStride(l), 4096)) // of a size that is aligned
	if err = ring.Init(area, l); err != nil {
		return w, err
	}
	if w.tx, err = ring.NewProducer(area, l); err != nil {
		return w, err
	}
	for w.tx.Room() {
		w.tx.Advance()
	}
	w.rx, err = ring.NewConsumer(area, l)
	return w, err
}

// pair finds a pair by its name; nil where there is none.
func (e *ep) pair(id machine.PairID) *pair {
	for _, p := range e.pairs {
		if p.id == id {
			return p
		}
	}
	return nil
}

// hold adds a pair to those of the connection.
func (e *ep) hold(p *pair) {
	if len(e.pairs) == 0 {
		e.f.mapped++
	}
	e.pairs = append(e.pairs, p)
}

// drop unmaps a pair that this side has left. Whatever brought that about, nothing
// points into it then.
func (e *ep) drop(id machine.PairID) {
	p := e.pair(id)
	if p == nil {
		return
	}
	if e.sends == id {
		e.sendNowhere()
	}
	if e.reads == id {
		e.readNowhere()
	}
	if fault.Enabled {
		fault.At(fault.Unmap)
	}
	e.pairs = slices.DeleteFunc(e.pairs, func(q *pair) bool { return q == p })
	if len(e.pairs) == 0 {
		e.f.mapped--
	}
	if err := p.seg.Close(); err != nil {
		e.f.d.logf("unmap a pair", err)
	}
}

// sendIn moves sending to a pair, or nowhere. A marker in the old one says so.
func (e *ep) sendIn(id machine.PairID) {
	if e.sends != machine.None {
		e.tx.Mark(uint64(id))
		e.hint()
	}
	// First out of the old pair, which goes whether the new one serves or not.
	e.sendNowhere()
	if p := e.pair(id); p != nil {
		tx, err := p.producer()
		if err != nil {
			e.f.failLater(e, failErr("it changed the head of a ring"))
			return
		}
		e.tx, e.sends = tx, id
	}
	e.salt = uint64(id) << saltShift
	if e.status != ucs.OK || e.pend.Len() > 0 {
		e.tx.Block()
	}
	if e.pend.Len() > 0 {
		e.f.look()
		if e.sends == machine.None {
			e.want() // what waits does not ask by itself
		}
	}
}

// sendNowhere and readNowhere leave the pair that is sent in, or read, for memory
// that is always mapped.
func (e *ep) sendNowhere() { e.tx, e.sends = e.f.nowhere.tx, machine.None }

func (e *ep) readNowhere() {
	e.heard = e.received()
	e.rx, e.reads = e.f.nowhere.rx, machine.None
}

// received reports whether the peer has sent any message.
func (e *ep) received() bool { return e.heard || e.rx.Taken() > 0 }

// saltShift keeps the hints of a pair apart from those of the one before: equal
// ones would not be seen.
const saltShift = 40

// readIn moves reading to a pair, or nowhere. What came before comes with no hint.
func (e *ep) readIn(id machine.PairID) {
	e.readNowhere()
	p := e.pair(id)
	if p == nil {
		e.f.chill(e)
		return
	}
	rx, err := p.consumer()
	if err != nil {
		e.f.failLater(e, failErr("it changed the head of a ring"))
		return
	}
	e.rx, e.reads = rx, id
	e.rx.Fence(e.fenced)
	if e.watched {
		e.rx.Watch(true)
	}
	e.f.heat(e)
	e.f.recheckLater(e)
	e.f.look()
}

// cells counts the messages that all rings of the connection can hold.
func (e *ep) cells() (n int) {
	for _, p := range e.pairs {
		n += p.layout.Cells
	}
	return n
}

// follow obeys the marker in the next cell, whose first word is first; anything
// else there is garbage.
func (f *iface) follow(e *ep, first uint64) {
	next, ok := e.rx.Mark(first)
	if ok && machine.PairID(next) != machine.End && e.sock != nil {
		e.read() // what agreed on it came before
	}
	if !ok || next>>32 != 0 {
		f.stats.Inc(statGarbage)
		f.failLater(e, failErr("it wrote garbage into its ring"))
		return
	}
	if e.dead == nil {
		e.step(machine.Event{Kind: machine.Marker, Pair: machine.PairID(next)})
		if e.m.PeerEnded() {
			f.settleLater(e)
		}
	}
}
