package wireup

import (
	"bytes"
	"fmt"

	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
)

// PeerID numbers a peer in its [Table]; 0 is no peer. The number of a released peer is reused.
type PeerID uint32

// Table stores the addresses of peers. The record of a peer contains no pointers and takes about
// 55 bytes with shm. The part that the workers of a host have in common is stored once. The zero
// Table is empty and ready to use.
//
// A Table is used by one goroutine at a time.
type Table struct {
	slab          slab
	index         index
	slots         [][]slot        // by PeerID, in blocks that never move
	n             uint32          // number of slots ever used, including the unused slot 0
	free          PeerID          // first free slot; its place field holds the next
	templates     []*hostTemplate // by number; nil: free
	numbers       map[string]uint32
	freeTemplates []uint32 // free numbers
	scratch       []byte
}

// slot is the state of a peer outside its record.
type slot struct {
	place    uint32 // of the record in the slab
	template uint32
	refs     uint32 // 0: free
}

const slotBlock = 2048

// Add stores the peer that addr describes, or adds a reference if the worker is already in the
// table. It does not retain addr.
//
// It returns an error that wraps [ErrAddress] for a malformed address. The same holds for a second
// address of a known worker, because a worker's address does not change.
func (t *Table) Add(addr []byte) (PeerID, error) {
	if _, err := check(addr); err != nil {
		return 0, err
	}
	var worker uct.UUID
	copy(worker[:], addr[offWorker:])
	t.scratch = appendTemplateKey(t.scratch[:0], addr)
	h := t.index.hash(worker)
	place, p := t.index.find(h, worker, t.UUID)
	if p != 0 {
		return p, t.addRef(p, addr)
	}
	number, ok := t.numbers[string(t.scratch)]
	if !ok {
		number = t.addTemplate()
	}
	tmpl := t.templates[number]
	tmpl.refs++
	s := slot{place: t.slab.alloc(tmpl.perPeer), template: number, refs: 1}
	tmpl.pack(t.slab.at(s.place, tmpl.perPeer), addr)
	p = t.slot()
	*t.at(p) = s
	t.index.insert(place, h, p, t.UUID)
	return p, nil
}

// addRef adds a reference to a known peer. It compares the new address, whose template key is in
// t.scratch, with the stored one.
func (t *Table) addRef(p PeerID, addr []byte) error {
	s := t.at(p)
	tmpl := t.templates[s.template]
	same := tmpl.key == string(t.scratch)
	if same {
		start := len(t.scratch)
		t.scratch = append(t.scratch, make([]byte, tmpl.perPeer)...)
		tmpl.pack(t.scratch[start:], addr)
		same = bytes.Equal(t.scratch[start:], t.slab.at(s.place, tmpl.perPeer))
	}
	if !same {
		return fmt.Errorf("%w: worker %x has another address in the table", ErrAddress, t.UUID(p))
	}
	s.refs++
	return nil
}

// Release drops one reference to p. The last one removes p from the table.
func (t *Table) Release(p PeerID) {
	s := t.at(p)
	if s.refs--; s.refs > 0 {
		return
	}
	u := t.UUID(p)
	place, _ := t.index.find(t.index.hash(u), u, t.UUID)
	t.index.remove(place, t.UUID)
	tmpl := t.templates[s.template]
	t.slab.release(s.place, tmpl.perPeer)
	if tmpl.refs--; tmpl.refs == 0 {
		delete(t.numbers, tmpl.key)
		t.templates[s.template] = nil
		t.freeTemplates = append(t.freeTemplates, s.template)
	}
	s.place, t.free = uint32(t.free), p
}

// Retain adds a reference to p, as Add of its address does.
func (t *Table) Retain(p PeerID) { t.at(p).refs++ }

// View returns the decoded address of p. It allocates and copies.
func (t *Table) View(p PeerID) View {
	s := t.at(p)
	tmpl := t.templates[s.template]
	return tmpl.view(t.slab.at(s.place, tmpl.perPeer))
}

// Features returns the feature bits of p's address.
func (t *Table) Features(p PeerID) protocol.Features {
	return protocol.Features(t.templates[t.at(p).template].key[featuresAt])
}

// UUID returns the worker UUID of p.
func (t *Table) UUID(p PeerID) (u uct.UUID) {
	copy(u[:], t.slab.at(t.at(p).place, len(u)))
	return u
}

// Len returns the number of peers.
func (t *Table) Len() int { return t.index.n }

// at returns the slot of p, which must be in the table.
func (t *Table) at(p PeerID) *slot { return &t.slots[p/slotBlock][p%slotBlock] }

// slot allocates a slot.
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

// addTemplate adds the template whose key is in t.scratch, and returns its number.
func (t *Table) addTemplate() uint32 {
	s := newTemplate(string(t.scratch))
	if t.numbers == nil {
		t.numbers = make(map[string]uint32)
	}
	n := uint32(len(t.templates))
	if k := len(t.freeTemplates); k > 0 {
		n, t.freeTemplates = t.freeTemplates[k-1], t.freeTemplates[:k-1]
		t.templates[n] = s
	} else {
		t.templates = append(t.templates, s)
	}
	t.numbers[s.key] = n
	return n
}
