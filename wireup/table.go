package wireup

import (
	"bytes"
	"fmt"

	"github.com/goucx/goucx/uct"
)

// PeerID names a peer in its [Table]; 0 is no peer. The number of a peer that
// was released is used again.
type PeerID uint32

// Table stores the addresses of peers. Each peer takes a record without
// pointers, about 55 bytes with shm; what the workers of a host have in common
// is stored once for them all. The zero Table is empty and ready.
//
// One goroutine at a time uses a Table.
type Table struct {
	slab    slab
	index   index
	slots   [][]slot // by PeerID, in blocks that never move
	n       uint32   // slots ever used, the unused slot 0 included
	free    PeerID   // first free slot; its place names the next
	shapes  []*shape // by number; nil: free
	numbers map[string]uint32
	reuse   []uint32 // free shape numbers
	scratch []byte
}

// slot is what the Table itself knows of a peer.
type slot struct {
	place uint32 // of the record in the slab
	shape uint32
	refs  uint32 // 0: free
}

const slotBlock = 2048

// Add stores the peer that addr describes, or counts one more reference to it
// where its worker is known already. It copies what it keeps of addr.
//
// A malformed address answers an error that wraps [ErrAddress]; so does another
// address for a known worker, because workers do not change theirs.
func (t *Table) Add(addr []byte) (PeerID, error) {
	if _, err := check(addr); err != nil {
		return 0, err
	}
	var worker uct.UUID
	copy(worker[:], addr[offWorker:])
	t.scratch = appendShapeKey(t.scratch[:0], addr)
	h := t.index.hash(worker)
	place, p := t.index.find(h, worker, t.UUID)
	if p != 0 {
		return p, t.again(p, addr)
	}
	number := t.shape()
	sh := t.shapes[number]
	s := slot{place: t.slab.alloc(sh.perPeer), shape: number, refs: 1}
	sh.pack(t.slab.at(s.place, sh.perPeer), addr)
	p = t.slot()
	*t.at(p) = s
	t.index.insert(place, h, p, t.UUID)
	return p, nil
}

// again counts a reference to a known peer after a look at its new address,
// whose shape key is in t.scratch.
func (t *Table) again(p PeerID, addr []byte) error {
	s := t.at(p)
	sh := t.shapes[s.shape]
	same := sh.key == string(t.scratch)
	if same {
		start := len(t.scratch)
		t.scratch = append(t.scratch, make([]byte, sh.perPeer)...)
		sh.pack(t.scratch[start:], addr)
		same = bytes.Equal(t.scratch[start:], t.slab.at(s.place, sh.perPeer))
	}
	if !same {
		return fmt.Errorf("%w: worker %x is known by another address", ErrAddress, t.UUID(p))
	}
	s.refs++
	return nil
}

// Release gives back one reference to p; after the last one p is forgotten.
func (t *Table) Release(p PeerID) {
	s := t.at(p)
	if s.refs--; s.refs > 0 {
		return
	}
	u := t.UUID(p)
	place, _ := t.index.find(t.index.hash(u), u, t.UUID)
	t.index.remove(place, t.UUID)
	t.slab.release(s.place, t.shapes[s.shape].perPeer)
	t.releaseShape(s.shape)
	s.place, t.free = uint32(t.free), p
}

// Retain is Add of an address that is in the table as p.
func (t *Table) Retain(p PeerID) { t.at(p).refs++ }

// View gives the address of p, decoded. It allocates and copies.
func (t *Table) View(p PeerID) View {
	s := t.at(p)
	sh := t.shapes[s.shape]
	return sh.view(t.slab.at(s.place, sh.perPeer))
}

// UUID is the worker UUID of p.
func (t *Table) UUID(p PeerID) (u uct.UUID) {
	copy(u[:], t.slab.at(t.at(p).place, len(u)))
	return u
}

// Find gives the peer with this worker UUID.
func (t *Table) Find(worker uct.UUID) (PeerID, bool) {
	_, p := t.index.find(t.index.hash(worker), worker, t.UUID)
	return p, p != 0
}

// Len is the number of peers.
func (t *Table) Len() int { return t.index.n }

// at is the slot of p, which must be in the table.
func (t *Table) at(p PeerID) *slot { return &t.slots[p/slotBlock][p%slotBlock] }

// slot takes a free slot.
func (t *Table) slot() PeerID {
	if p := t.free; p != 0 {
		t.free = PeerID(t.at(p).place)
		return p
	}
	if t.n == 0 {
		t.n = 1
	}
	if int(t.n/slotBlock) == len(t.slots) {
		t.slots = append(t.slots, make([]slot, slotBlock))
	}
	p := PeerID(t.n)
	t.n++
	return p
}

// shape gives the number of the shape whose key is in t.scratch, and counts a
// reference to it.
func (t *Table) shape() uint32 {
	n, ok := t.numbers[string(t.scratch)]
	if !ok {
		n = t.addShape()
	}
	t.shapes[n].refs++
	return n
}

func (t *Table) addShape() uint32 {
	s := newShape(string(t.scratch))
	if t.numbers == nil {
		t.numbers = make(map[string]uint32)
	}
	n := uint32(len(t.shapes))
	if k := len(t.reuse); k > 0 {
		n, t.reuse = t.reuse[k-1], t.reuse[:k-1]
		t.shapes[n] = s
	} else {
		t.shapes = append(t.shapes, s)
	}
	t.numbers[s.key] = n
	return n
}

func (t *Table) releaseShape(n uint32) {
	s := t.shapes[n]
	if s.refs--; s.refs == 0 {
		delete(t.numbers, s.key)
		t.shapes[n] = nil
		t.reuse = append(t.reuse, n)
	}
}
