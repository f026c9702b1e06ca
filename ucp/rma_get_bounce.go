package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
)

// getUint64Bounce gets a word through a bounce buffer, for a transport without GetUint64.
func (k *RemoteKey) getUint64Bounce(off uint64) Fetch[uint64] {
	w := k.t.w
	i := k.newSlot(opGetUint64, k.rma, off)
	c := w.pool.get(8)
	w.slab.copies[i] = c
	w.slab.bufs[i] = w.pool.bytes(c)[:8:8]
	s := &w.slab.slots[i]
	s.flags |= flagExtra
	s.aux = auxBounced
	v, r := w.startFetch(i)
	return Fetch[uint64]{v, r}
}

// bounceDone stores the word of a get that returned st.
func (s *slot) bounceDone(st ucs.Status, p []byte) ucs.Status {
	return s.fetched(binary.LittleEndian.Uint64(p), st)
}
