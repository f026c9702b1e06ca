//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// A member exposes two pieces of memory, one allocated and one registered. Each has a
// shared word and a slot for each other member, which that one alone accesses:
//
//	0 shared word | 4096 slot 0 | slot 1 | ...
//
// and a slot has words for atomics and regions for puts and gets:
//
//	0 64-bit words | 16 32-bit words | 24 signed word | 64 region 0 | region 1 | ...
const (
	slotsOff   = 4096
	numSlots   = 64 // far more than members, so that nothing uses that of one which ended late
	bigRegion  = 96 << 10
	regionLen  = 20 << 10
	numRegions = 5
	slotLen    = 64 + bigRegion + (numRegions-1)*regionLen

	// Regions that only puts of their own protocol write.
	twinRegion  = 2
	toldRegions = 3 // and after
)

func regionAt(i int) (off, n int) {
	if i == 0 {
		return 64, bigRegion
	}
	return 64 + bigRegion + (i-1)*regionLen, regionLen
}

func slotAt(slot uint32) int { return slotsOff + int(slot)*slotLen }

// remote is this member's slot in a peer's memory.
type remote struct {
	l       *link
	index   int // of the peer's memory
	key     *ucp.RemoteKey
	off     uint64 // of the slot
	regions [toldRegions]region
	told    [numRegions]bool // the peer was notified of a put and has not replied
	words   []amo
}

// region is what a slot's region must hold.
type region struct {
	content []byte
	since   access // the last fence
	busy    bool   // its own protocol is under way
}

type access uint8

const (
	accessNone access = iota
	accessGet
	accessPut
)

// setUp unpacks the peer's keys.
func (l *link) setUp(with line) {
	for i, key := range with.Keys {
		k, err := l.eps[mainEP].UnpackKey(key)
		if err != nil {
			l.result(fmt.Sprintf("UnpackKey %d", i), err)
			return
		}
		r := &remote{l: l, index: i, key: k, off: uint64(slotAt(l.m.Slot))}
		for j := range r.regions {
			off, n := regionAt(j)
			r.regions[j].content = make([]byte, n)
			r.put(j, off, n)
		}
		l.addWord(r, atomicAt[uint64](r, 0), atomicAt[uint64](r, 8), atomicAt[uint32](r, 16), atomicAt[uint32](r, 20), atomicAt[int64](r, 24))
		l.remotes = append(l.remotes, r)
	}
	var err error
	if l.shared, err = ucp.AtomicAt[uint64](l.remotes[0].key, 0); err == nil {
		l.twin, err = l.eps[twinEP].UnpackKey(with.Keys[0])
	}
	l.result("shared word and twin", err)
}

func (l *link) addWord(r *remote, words ...amo) {
	for _, w := range words {
		if w != nil {
			r.words = append(r.words, w)
		}
	}
}

// access puts to a region or gets from it. A fence goes between accesses that
// conflict, and nowhere else.
func (l *link) access() {
	r := l.remotes[l.m.rnd.IntN(len(l.remotes))]
	i := l.m.rnd.IntN(twinRegion)
	start, size := regionAt(i)
	n := l.m.rnd.IntN(200)
	if l.m.rnd.IntN(4) == 0 {
		n = l.m.rnd.IntN(size)
	}
	off := start + l.m.rnd.IntN(size-n)
	if l.m.rnd.IntN(4) == 0 {
		n, off = 8, off&^7
	}
	if l.m.rnd.IntN(2) == 0 {
		r.put(i, off, n)
	} else {
		r.get(i, off, n)
	}
}

// conflict fences where an access does not go with those since the last fence.
func (r *remote) conflict(i int, a access) {
	g := &r.regions[i]
	if g.since == accessPut || g.since == accessGet && a == accessPut {
		r.l.fence()
	}
	g.since = max(g.since, a)
}

func (r *remote) put(i, off, n int) {
	l, m := r.l, r.l.m
	r.conflict(i, accessPut)
	l.record("put", 0, n)
	p := m.buffer(n)
	fill(p, m.rnd.Uint64())
	start, _ := regionAt(i)
	copy(r.regions[i].content[off-start:], p)
	at := r.off + uint64(off)
	var req ucp.Request
	switch form := m.rnd.IntN(3); {
	case form == 0 && n == 8:
		req = r.key.PutUint64(binary.LittleEndian.Uint64(p), at)
	case form == 1 && n <= 8:
		req = r.key.PutInline(p, at)
		m.pool.put(p)
		p = nil
	default:
		req = r.key.Put(p, at)
	}
	m.bytes += uint64(n)
	l.post(fmt.Sprintf("put of %d bytes to memory %d", n, r.index), mainEP, req, func() error {
		err := req.Err()
		m.release(p, err)
		return err
	})
}

func (r *remote) get(i, off, n int) {
	l, m := r.l, r.l.m
	r.conflict(i, accessGet)
	start, _ := regionAt(i)
	want := bytes.Clone(r.regions[i].content[off-start:][:n])
	at := r.off + uint64(off)
	if n == 8 && m.rnd.IntN(2) == 0 {
		postFetch(l, "get of a word", r.key.GetUint64(at), binary.LittleEndian.Uint64(want), true)
		return
	}
	l.readBack(r.key, mainEP, at, want, func(got []byte) string {
		if bytes.Equal(got, r.regions[i].content[off-start:][:n]) {
			return "; these bytes were put later"
		}
		return ""
	})
}

// readBack gets and compares. At the end it calls then, which may explain a difference.
func (l *link) readBack(k *ucp.RemoteKey, ep int, at uint64, want []byte, then func(got []byte) string) {
	m := l.m
	l.record("get", uint32(ep), len(want))
	p := m.buffer(len(want))
	req := k.Get(p, at)
	m.bytes += uint64(len(p))
	l.post(fmt.Sprintf("get of %d bytes", len(p)), ep, req, func() error {
		err := req.Err()
		why := then(p)
		if err == nil {
			if diff := difference(p, want); diff != nil {
				err = wrongf("at %d: %v%s", at, diff, why)
			}
		}
		m.release(p, err)
		return err
	})
}

// putAndReadBack puts, flushes, and gets by the twin endpoint.
func (l *link) putAndReadBack() {
	r := l.remotes[0]
	g := &r.regions[twinRegion]
	if g.busy {
		return
	}
	g.busy = true
	off, n := regionAt(twinRegion)
	n = 1 + l.m.rnd.IntN(n)
	r.put(twinRegion, off, n)
	want := bytes.Clone(g.content[:n])
	if l.m.Fault == "put" {
		want[0]++
	}
	req := l.eps[mainEP].Flush()
	l.post("flush before a get by the twin", noEP, req, func() error {
		if err := req.Err(); err != nil {
			return err
		}
		g.since = accessNone
		l.readBack(l.twin, twinEP, r.off+uint64(off), want, func([]byte) string { g.busy = false; return "" })
		return nil
	})
}

// putAndTell puts, fences, and notifies the peer by an active message, which looks and
// replies.
func (l *link) putAndTell() {
	m := l.m
	r := l.remotes[m.rnd.IntN(len(l.remotes))]
	i := toldRegions + m.rnd.IntN(numRegions-toldRegions)
	if r.told[i] {
		return
	}
	r.told[i] = true
	content := m.rnd.Uint64()
	off, n := regionAt(i)
	p := m.buffer(toldLen(content, n))
	l.record("put", 0, len(p))
	fill(p, content)
	req := r.key.Put(p, r.off+uint64(off))
	l.post("put before a message", mainEP, req, func() error {
		err := req.Err()
		m.release(p, err)
		return err
	})
	l.fence()
	l.ask(amPut, r.index<<4|i, content, func() { r.told[i] = false })
}

// toldLen is the length of the put with this content.
func toldLen(content uint64, most int) int {
	if content%4 > 0 {
		return int(content>>2) & 127
	}
	return int(content>>2) % most
}

// lookAt checks the bytes that a peer has put.
func (m *member) lookAt(c *checker, slot uint32, where int, content uint64) error {
	off, n := regionAt(where & 15)
	at := slotAt(slot) + off
	return c.check(m.mem[where>>4].Bytes()[at:][:toldLen(content, n)], content)
}

func (l *link) fence() {
	l.record("fence", 0, 0)
	l.eps[mainEP].Fence()
	l.fenced()
}

func (l *link) fenced() {
	for _, r := range l.remotes {
		for i := range r.regions {
			r.regions[i].since = accessNone
		}
	}
}

// amo is a word that only this member changes; it takes one atomic operation.
type amo interface{ begin(l *link) }

// word is an amo with the value that it has after all operations posted.
type word[T ucp.Word] struct {
	ucp.Atomic[T]
	value T
	known bool
}

// atomicAt returns nil where the lane has no atomics.
func atomicAt[T ucp.Word](r *remote, off uint64) amo {
	a, err := ucp.AtomicAt[T](r.key, r.off+off)
	if errors.Is(err, ucp.ErrUnsupported) {
		return nil
	}
	r.l.result("AtomicAt", err)
	return &word[T]{Atomic: a}
}

func (l *link) atomic() {
	if l.m.rnd.IntN(8) == 0 {
		l.addShared()
		return
	}
	r := l.remotes[l.m.rnd.IntN(len(l.remotes))]
	if len(r.words) > 0 {
		r.words[l.m.rnd.IntN(len(r.words))].begin(l)
	}
}

func (w *word[T]) begin(l *link) {
	v, before := T(l.m.rnd.Uint64()), w.value
	form := l.m.rnd.IntN(11)
	if !w.known {
		form = 8
	}
	var req ucp.Request
	switch form {
	case 0:
		req, w.value = w.Add(v), before+v
	case 1:
		req, w.value = w.And(v|v<<3), before&(v|v<<3)
	case 2:
		req, w.value = w.Or(v&(v<<3)), before|v&(v<<3)
	case 3:
		req, w.value = w.Xor(v), before^v
	case 4:
		w.value = before + v
		postFetch(l, "fetching add", w.FetchAdd(v), before, true)
		return
	case 5:
		w.value = before & (v | v<<3)
		postFetch(l, "fetching and", w.FetchAnd(v|v<<3), before, true)
		return
	case 6:
		w.value = before | v&(v<<3)
		postFetch(l, "fetching or", w.FetchOr(v&(v<<3)), before, true)
		return
	case 7:
		w.value = before ^ v
		postFetch(l, "fetching xor", w.FetchXor(v), before, true)
		return
	case 8:
		w.value = v
		postFetch(l, "swap", w.Swap(v), before, w.known)
		w.known = true
		return
	case 9:
		old := before
		if l.m.rnd.IntN(3) == 0 {
			old++
		} else {
			w.value = v
		}
		postFetch(l, "compare and swap", w.CompareAndSwap(old, v), before, true)
		return
	case 10:
		postFetch(l, "load", w.Load(), before, true)
		return
	}
	l.record("atomic", 0, 0)
	l.post(fmt.Sprintf("atomic %d on a %T", form, v), mainEP, req, func() error { return req.Err() })
}

// postFetch requires the value that a fetching operation must return.
func postFetch[T ucp.Word](l *link, name string, f ucp.Fetch[T], want T, known bool) {
	l.record(name, 0, 0)
	l.post(fmt.Sprintf("%s of a %T", name, want), mainEP, f, func() error {
		v, err := f.Wait(context.Background())
		if err == nil && known && v != want {
			err = wrongf("value %#x, not %#x", v, want)
		}
		return err
	})
}

// addShared adds to the word that all members add to: what one fetches grows.
func (l *link) addShared() {
	n := 1 + l.m.rnd.Uint64N(9)
	l.record("shared add", 0, 0)
	l.sent.Shared += n
	if l.m.rnd.IntN(2) == 0 {
		req := l.shared.Add(n)
		l.post("shared add", mainEP, req, func() error { return req.Err() })
		return
	}
	f, seen := l.shared.FetchAdd(n), l.seen
	l.post("shared fetching add", mainEP, f, func() error {
		v, err := f.Wait(context.Background())
		if err == nil && v < seen {
			err = wrongf("the shared word was %d after it had been %d", v, seen)
		}
		l.seen = max(l.seen, v+n)
		return err
	})
}
