package wireup

import (
	"hash/maphash"

	"github.com/goucx/goucx/uct"
)

// An index finds peers by worker UUID. It is a hash table with open addressing and linear probing.
// Each slot takes four bytes, and at most three quarters of the slots are used. The UUIDs
// themselves are in the peers' records. A tag byte for each slot avoids nearly all comparisons
// with another peer's UUID.
type index struct {
	ids  []PeerID // 0: empty
	tags []uint8
	n    int
	seed maphash.Seed
}

const indexMin = 16

// uuidOf returns the worker UUID of a peer in the index.
type uuidOf func(PeerID) uct.UUID

func (x *index) hash(u uct.UUID) uint64 {
	if len(x.ids) == 0 {
		x.seed = maphash.MakeSeed()
		x.ids, x.tags = make([]PeerID, indexMin), make([]uint8, indexMin)
	}
	return maphash.Bytes(x.seed, u[:])
}

// find returns the slot and the peer of u. When u is not in the index, the peer is 0 and place is
// the slot for insert.
func (x *index) find(h uint64, u uct.UUID, of uuidOf) (place int, p PeerID) {
	mask := len(x.ids) - 1
	tag := uint8(h >> 56)
	for i := int(h) & mask; ; i = (i + 1) & mask {
		p := x.ids[i]
		if p == 0 || x.tags[i] == tag && of(p) == u {
			return i, p
		}
	}
}

// insert puts p into the slot that find returned for its hash.
func (x *index) insert(place int, h uint64, p PeerID, of uuidOf) {
	x.ids[place], x.tags[place] = p, uint8(h>>56)
	x.n++
	if x.n*4 <= len(x.ids)*3 {
		return
	}
	old := x.ids
	x.ids, x.tags = make([]PeerID, 2*len(old)), make([]uint8, 2*len(old))
	for _, p := range old {
		if p != 0 {
			h := x.hash(of(p))
			mask := len(x.ids) - 1
			i := int(h) & mask
			for x.ids[i] != 0 {
				i = (i + 1) & mask
			}
			x.ids[i], x.tags[i] = p, uint8(h>>56)
		}
	}
}

// remove empties a slot. It then moves back the peers behind it that probing would no longer find.
func (x *index) remove(place int, of uuidOf) {
	mask := len(x.ids) - 1
	x.n--
	gap := place
	for i := (gap + 1) & mask; x.ids[i] != 0; i = (i + 1) & mask {
		home := int(x.hash(of(x.ids[i]))) & mask
		if (i-home)&mask >= (i-gap)&mask {
			x.ids[gap], x.tags[gap] = x.ids[i], x.tags[i]
			gap = i
		}
	}
	x.ids[gap], x.tags[gap] = 0, 0
}
