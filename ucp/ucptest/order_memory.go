package ucptest

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucp"
)

// form is how a place is written.
type form uint8

const (
	formWord  form = iota // 8 aligned bytes: puts in one piece and atomics of 64 bits
	formHalf              // 4 aligned bytes: puts and atomics of 32 bits
	formBlock             // bytes at any address: puts
)

// use is what an epoch does to a place. Puts and atomics are not atomic with each
// other, so no epoch has both.
type use uint8

const (
	useNone use = iota
	usePut
	useAtomic
)

// write is a put, or an atomic, of a place.
type write struct {
	at    int // position among the operations posted; -1: the initial content
	epoch int
	exact bool   // an atomic: it takes effect after the ones before it
	v     uint64 // the word, or the seed of the block's content
}

// place is memory of the target that each put and get covers whole.
type place struct {
	name   string
	form   form
	off, n int
	m      *ucp.MemHandle
	k      *ucp.RemoteKey
	w64    *ucp.Atomic[uint64] // nil: the memory has no such atomics
	w32    *ucp.Atomic[uint32]
	use    use
	writes []write
}

// seen returns the writes of which the place may hold bytes when everything posted
// before position at has taken effect, and nothing of an epoch after last: the writes
// of one epoch before at are not ordered, all older ones are overwritten.
func (pl *place) seen(at, last int) []write {
	i := len(pl.writes) - 1
	for pl.writes[i].at >= at {
		i--
	}
	if !pl.writes[i].exact {
		for e := pl.writes[i].epoch; i > 0 && pl.writes[i-1].epoch == e; {
			i--
		}
	}
	end := len(pl.writes)
	for pl.writes[end-1].epoch > last {
		end--
	}
	return pl.writes[i:end]
}

// forget drops the writes that nothing can show any more.
func (pl *place) forget() { pl.writes = slices.Delete(pl.writes, 0, len(pl.writes)-1) }

// content is what w leaves in the place.
func (pl *place) content(w write) []byte {
	b := make([]byte, pl.n)
	if pl.form == formBlock {
		scribble(b, w.v)
		return b
	}
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], w.v)
	copy(b, word[:])
	return b
}

// scribble fills b with bytes that depend on v.
func scribble(b []byte, v uint64) {
	x := v*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	for len(b) >= 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b, x)
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
}

// holdsOne reports whether each byte of got is one of ws at its place: what is
// written meanwhile may be seen in part. It returns the first other byte.
func (pl *place) holdsOne(got []byte, ws []write) (bad int, ok bool) {
	all := make([][]byte, 0, len(ws))
	for _, w := range slices.Backward(ws) {
		c := pl.content(w)
		if bytes.Equal(c, got) {
			return 0, true
		}
		all = append(all, c)
	}
	for i, b := range got {
		if !slices.ContainsFunc(all, func(c []byte) bool { return c[i] == b }) {
			return i, false
		}
	}
	return 0, true
}

// blocks are the lengths of the blocks: around the limits of short operations, of
// segments, and of what goes without a copy. The longest get takes more messages
// than may await an answer, where the owner's worker does it.
var blocks = []int{1, 7, 24, 63, 65, 200, 1000, 4100, 8192, 17_000, 66_000, 300_001}

// words of each kind in each memory.
const words = 6

// lay lays out the places of m, which the endpoint reaches by its key.
func (o *order) lay(kind string, m *ucp.MemHandle) {
	k, err := o.ep.UnpackKey(m.Key())
	require.NoError(o.t, err)
	off := 0
	add := func(f form, n int) *place {
		pl := &place{name: kind, form: f, off: off, n: n, m: m, k: k, writes: []write{{at: -1, epoch: -1}}}
		if f == formBlock {
			copy(m.Bytes()[off:], pl.content(pl.writes[0]))
		}
		o.places = append(o.places, pl)
		off += n
		return pl
	}
	for range words {
		pl := add(formWord, 8)
		o.words = append(o.words, pl)
		if a, err := ucp.AtomicAt[uint64](k, uint64(pl.off)); err == nil {
			pl.w64 = &a
		} else {
			require.ErrorIs(o.t, err, ucp.ErrUnsupported)
		}
	}
	for range words {
		pl := add(formHalf, 4)
		if o.p.Factory.FewAtomics {
			continue
		}
		if a, err := ucp.AtomicAt[uint32](k, uint64(pl.off)); err == nil {
			pl.w32 = &a
		} else {
			require.ErrorIs(o.t, err, ucp.ErrUnsupported)
		}
	}
	for i, n := range blocks {
		off += i % 3
		add(formBlock, n)
	}
}

// layout is the length of a memory that lay takes.
func layout() int {
	n := 12*words + 3*len(blocks)
	for _, b := range blocks {
		n += b
	}
	return n
}

func (o *order) place(want func(*place) bool) *place {
	for {
		if pl := o.places[o.r.IntN(len(o.places))]; want(pl) {
			return pl
		}
	}
}

// near picks a place, mostly the one used last: operations on one place show whether
// they have kept their order.
func (o *order) near(want func(*place) bool) *place {
	if o.last == nil || !want(o.last) || o.r.IntN(3) == 0 {
		o.last = o.place(want)
	}
	return o.last
}

// put puts to a place that no atomic of this epoch works on.
func (o *order) put() {
	pl := o.near(o.affords)
	if pl.use == useAtomic {
		return
	}
	pl.use = usePut
	w := write{at: o.at, epoch: o.epoch(), v: o.r.Uint64()}
	if pl.form == formHalf {
		w.v = uint64(uint32(w.v))
	}
	data, off := pl.content(w), uint64(pl.off)
	var r ucp.Request
	switch f := o.r.IntN(4); {
	case f == 0 && pl.form == formWord:
		r = pl.k.PutUint64(w.v, off)
	case f == 1 && pl.n <= 8:
		r = pl.k.PutInline(data, off)
		clear(data)
	default:
		r = pl.k.Put(data, off)
	}
	pl.writes = append(pl.writes, w)
	o.post(r, "put", pl.n, func() {
		require.NoError(o.t, r.Err())
		clear(data) // it is the program's again
	})
}

// get gets a place. It sees what was put before the last fence and nothing of what
// is put after the next.
func (o *order) get() {
	pl := o.near(o.affords)
	epoch, off := o.epoch(), uint64(pl.off)
	check := func(got []byte) {
		ws := pl.seen(o.begins[epoch], epoch)
		if i, ok := pl.holdsOne(got, ws); !ok {
			o.fail("a get of epoch %d of %s: byte %d is %#x, written by %s", epoch, pl, i, got[i], pl.author(got, i))
		}
	}
	if pl.form == formWord && o.r.IntN(2) == 0 {
		f := pl.k.GetUint64(off)
		o.post(f, "get", 8, func() {
			v, err := f.Wait(o.p.deadline)
			require.NoError(o.t, err)
			check(binary.LittleEndian.AppendUint64(nil, v))
		})
		return
	}
	buf := make([]byte, pl.n)
	r := pl.k.Get(buf, off)
	o.post(r, "get", pl.n, func() {
		require.NoError(o.t, r.Err())
		check(buf)
	})
}

// affords keeps the long ones seldom.
func (o *order) affords(pl *place) bool { return o.r.IntN(1+pl.n/50_000) == 0 }

// author names the writes that byte i of got may be of.
func (pl *place) author(got []byte, i int) string {
	for _, w := range slices.Backward(pl.writes) {
		if pl.content(w)[i] == got[i] {
			return w.String()
		}
	}
	return "no operation, or one long ago"
}

// atomic works on a word that no put of this epoch writes, and whose value is known.
func (o *order) atomic() {
	pl := o.near(func(pl *place) bool { return pl.form != formBlock })
	last := pl.seen(o.at, o.epoch())
	if pl.use == usePut || len(last) > 1 || pl.w64 == nil && pl.w32 == nil {
		return
	}
	pl.use = useAtomic
	if pl.w64 != nil {
		atomicOf(o, pl, *pl.w64, last[0].v)
	} else {
		atomicOf(o, pl, *pl.w32, uint32(last[0].v))
	}
}

// atomicOf posts any atomic on a word that holds old.
func atomicOf[T ucp.Word](o *order, pl *place, a ucp.Atomic[T], old T) {
	v := T(o.r.Uint64())
	var f ucp.Fetch[T]
	var r ucp.Request
	now, fetches := old, true
	kinds := 11
	if o.p.Factory.FewAtomics {
		kinds = 4
	}
	switch o.r.IntN(kinds) {
	case 0:
		r, now, fetches = a.Add(v), old+v, false
	case 1:
		f, now = a.FetchAdd(v), old+v
	case 2:
		if o.r.IntN(4) == 0 {
			f = a.CompareAndSwap(^old, v)
		} else {
			f, now = a.CompareAndSwap(old, v), v
		}
	case 3:
		f = a.Load()
	case 4:
		r, now, fetches = a.And(v), old&v, false
	case 5:
		r, now, fetches = a.Or(v), old|v, false
	case 6:
		r, now, fetches = a.Xor(v), old^v, false
	case 7:
		f, now = a.FetchAnd(v), old&v
	case 8:
		f, now = a.FetchOr(v), old|v
	case 9:
		f, now = a.FetchXor(v), old^v
	case 10:
		f, now = a.Swap(v), v
	}
	if now != old {
		pl.writes = append(pl.writes, write{o.at, o.epoch(), true, uint64(now)})
	}
	if !fetches {
		o.post(r, "atomic", pl.n, func() { require.NoError(o.t, r.Err()) })
		return
	}
	epoch := o.epoch()
	o.post(f, "fetching atomic", pl.n, func() {
		got, err := f.Wait(o.p.deadline)
		require.NoError(o.t, err)
		if got != old {
			o.fail("a fetching atomic of epoch %d on %s returns %#x instead of %#x", epoch, pl, got, old)
		}
	})
}

// shows notes that everything posted before position at has taken effect, as why
// tells, and looks at the target's memory.
func (o *order) shows(at int, why string) {
	o.known = max(o.known, at)
	for _, pl := range o.words {
		o.word(pl, pl.m.Load64(pl.off), o.known, why)
	}
	if o.direct && !race.Enabled {
		o.holds(o.place(func(pl *place) bool { return pl.n < 20_000 || o.r.IntN(16) == 0 }), o.known, why)
	}
}

// word holds the value v of a word to what may be seen, and returns the oldest write
// that it may be of.
func (o *order) word(pl *place, v uint64, at int, why string) write {
	for _, w := range pl.seen(at, o.epoch()) {
		if w.v == v {
			return w
		}
	}
	got := binary.LittleEndian.AppendUint64(nil, v)
	o.fail("%s, posted at %d or later: %s holds %#x, written by %s", why, at, pl, v, pl.author(got, 0))
	return write{}
}

// holds holds the bytes of a place to what may be seen.
func (o *order) holds(pl *place, at int, why string) {
	got := pl.m.Bytes()[pl.off:][:pl.n]
	if i, ok := pl.holdsOne(got, pl.seen(at, o.epoch())); !ok {
		o.fail("%s, posted at %d or later: byte %d of %s is %#x, written by %s", why, at, i, pl, got[i], pl.author(got, i))
	}
}

// watch looks at the target's words as its program may at any time. A word that was
// written in an epoch shows that everything of the epochs before has taken effect.
func (o *order) watch() {
	at := o.known
	for _, pl := range o.words {
		w := o.word(pl, pl.m.Load64(pl.off), o.known, "looked at")
		if w.epoch >= 0 {
			at = max(at, o.begins[w.epoch])
		}
	}
	if at > o.known {
		o.shows(at, "a word of a later epoch was seen")
		o.arrived(at)
	}
}
