package ucp

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
)

// unexpected is a message that waits for its receive.
type unexpected struct {
	chunk chunk
	n     uint64 // length in all, of which Worker.open may say that less is there
}

// arrive takes in a whole message.
// hot: BenchmarkTagPair
func (w *Worker) arrive(tag uint64, data []byte) {
	i := w.posted.Match(tag)
	if i == 0 {
		w.keep(tag, data)
		return
	}
	s := &w.slab.slots[i]
	if p := w.slab.bufs[i]; len(data) == 8 && len(p) >= 8 && s.flags == flagKept {
		s.tag, s.n = tag, 8
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(data))
		s.state = slotDone
		return
	}
	w.deliver(i, tag, data)
}

// deliver ends the receive in slot i with data.
// hot: BenchmarkTagPair
func (w *Worker) deliver(i uint32, tag uint64, data []byte) {
	s := &w.slab.slots[i]
	p := w.slab.bufs[i]
	s.tag, s.n = tag, uint64(len(data))
	if copy(p, data) < len(data) {
		w.endSlow(i, ucs.Truncated)
		return
	}
	if s.flags == flagKept {
		s.state = slotDone
		return
	}
	w.endSlow(i, ucs.OK)
}

// keep stores a message that nobody waits for yet.
//
//go:noinline
func (w *Worker) keep(tag uint64, data []byte) {
	u := unexpected{n: uint64(len(data))}
	if len(data) > 0 {
		u.chunk = w.pool.get(len(data))
		copy(w.pool.bytes(u.chunk), data)
	}
	w.addArrived(tag, u)
}

func (w *Worker) addArrived(tag uint64, u unexpected) uint32 {
	w.count.Inc(cntUnexpected)
	id := w.arrived.Add(tag)
	for int(id) >= len(w.un) {
		w.un = append(w.un, unexpected{})
	}
	w.un[id] = u
	return id
}

// takeArrived ends the receive in slot i with a message that is there already,
// or lets it go on with one that is coming in.
//
//go:noinline
func (w *Worker) takeArrived(i uint32, tag, mask uint64) bool {
	id := w.arrived.Match(tag, mask)
	if id == 0 {
		return false
	}
	u := w.un[id]
	tag = w.arrived.Tag(id)
	w.arrived.Free(id)
	if len(w.open) > 0 {
		if src := w.open[id]; src != nil {
			delete(w.open, id)
			w.takeOver(i, src)
			return true
		}
	}
	if u.n == 0 {
		w.deliver(i, tag, nil)
		return true
	}
	w.deliver(i, tag, w.pool.bytes(u.chunk)[:u.n])
	w.pool.put(u.chunk)
	return true
}
