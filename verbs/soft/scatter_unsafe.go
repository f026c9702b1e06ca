package soft

import (
	"sync/atomic"
	"unsafe"

	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// sgLen returns the total length of the SGEs in bytes.
func sgLen(sg []verbs.SGE) int {
	n := 0
	for i := range sg {
		n += int(sg[i].Len)
	}
	return n
}

// scatter copies p's payload into the SGEs sg, memory of pd, starting at byte off of
// the list. last is set if p ends the message. It returns false if the payload does not
// fit or a key is not valid.
func (q *qp) scatter(pd *pd, sg []verbs.SGE, off int, p *packet, last bool) bool {
	for i, from := 0, 0; from < p.n; i++ {
		if i == len(sg) {
			return false
		}
		s := sg[i]
		if off >= int(s.Len) {
			off -= int(s.Len)
			continue
		}
		s.Addr += uint64(off)
		s.Len = uint32(min(int(s.Len)-off, p.n-from))
		off = 0
		to, ok := q.d.local(pd, s, verbs.LocalWrite)
		if !ok {
			return false
		}
		q.placePayload(to, p, from, int(s.Len), last && from+int(s.Len) == p.n)
		from += int(s.Len)
	}
	return true
}

// placeSingle is scatter for the usual message: one packet, one piece of payload, one
// SGE. It returns false if p is another kind of message or the key is not valid.
func (q *qp) placeSingle(p *packet, info *wire.Info) bool {
	r := &q.rsp.recv
	if info.Place != wire.PlaceOnly || p.nsg != 1 || p.n == 0 || r.nsg != 1 {
		return false
	}
	to, ok := q.d.local(q.recvPD, verbs.SGE{Addr: r.sg[0].Addr, Len: uint32(p.n), LKey: r.sg[0].LKey}, verbs.LocalWrite)
	if ok {
		placeLastWord(to, p.sg[0])
	}
	return ok
}

// placePayload copies n bytes of p's payload, starting at byte from, to to. If last is set,
// the last aligned word of to is stored last, in one store-release. A program that
// polls this word sees all bytes before it.
func (q *qp) placePayload(to []byte, p *packet, from, n int, last bool) {
	for i := 0; n > 0; i++ {
		b := p.sg[i]
		if from >= len(b) {
			from -= len(b)
			continue
		}
		b = b[from:]
		from = 0
		b = b[:min(len(b), n)]
		n -= len(b)
		if last && n == 0 {
			placeLastWord(to, b)
		} else {
			dma(to, b)
		}
		to = to[len(b):]
	}
}

// placeLastWord copies b to to. It stores the last aligned word after all other bytes, in
// one store-release.
func placeLastWord(to, b []byte) {
	const word = 8
	n := len(b)
	if n < word || (uintptr(unsafe.Pointer(unsafe.SliceData(to)))+uintptr(n))%word != 0 {
		dma(to, b)
		return
	}
	if n -= word; n != 0 {
		dma(to, b[:n])
	}
	w := *(*[word]byte)(b[n:])
	cpu.StoreRelease((*atomic.Uint64)(unsafe.Pointer(&to[n])), *(*uint64)(unsafe.Pointer(&w)))
}

// alignedWord returns b's first eight bytes as a word, or nil if b is shorter or not aligned.
func alignedWord(b []byte) *uint64 {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b) < 8 || uintptr(p)%8 != 0 {
		return nil
	}
	return (*uint64)(p)
}

// fetchAdd adds v to the word in b with an atomic instruction of the CPU. It returns
// the previous value, and false if b is not an aligned word.
func fetchAdd(b []byte, v uint64) (old uint64, ok bool) {
	w := alignedWord(b)
	if w == nil {
		return 0, false
	}
	return atomic.AddUint64(w, v) - v, true
}

// compareSwap stores swap in the word in b if that equals compare, with an atomic
// instruction of the CPU. It returns the previous value, and false if b is not an
// aligned word.
func compareSwap(b []byte, compare, swap uint64) (old uint64, ok bool) {
	w := alignedWord(b)
	if w == nil {
		return 0, false
	}
	for {
		old = atomic.LoadUint64(w)
		if old != compare || atomic.CompareAndSwapUint64(w, compare, swap) {
			return old, true
		}
	}
}
