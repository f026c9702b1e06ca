package async

import (
	"math"
	"math/bits"

	"github.com/goucx/goucx/ucs"
)

// tickShift defines the resolution of all timers: a tick is 2^tickShift ns (16 us).
const tickShift = 14

const (
	slotBits = 6
	slots    = 1 << slotBits
	levels   = 9 // 54 bits of ticks: more than a Time holds
)

// never is the deadline of an empty wheel.
const never = ucs.Time(math.MaxInt64)

// Timer identifies a timer; the zero Timer is none.
type Timer uint64

// node is a timer in the list of its slot. Index 0 ends a list and holds no timer.
type node struct {
	fn         func(now ucs.Time)
	tick       uint64
	next, prev uint32
	gen        uint32
	level      uint8
	slot       uint8
	live       bool
}

// wheel is a hierarchical timing wheel with 64 slots per level. A slot spans a whole turn of
// the level below. Setting and canceling take constant time. A timer moves down at most
// once per level. The wheel has no clock: the caller passes the time, which must not
// decrease. It is not safe for concurrent use.
//
// Invariant: every timer is at the level of the highest 6-bit digit in which its tick
// differs from w.tick. So on each level only slots above the current digit are used; the
// lowest level also uses the slot of the current digit. The lowest level in use holds the
// earliest timer.
type wheel struct {
	nodes []node
	free  uint32
	tick  uint64 // all timers before it were popped
	used  [levels]uint64
	heads [levels][slots]uint32
}

func newWheel(now ucs.Time) *wheel {
	return &wheel{nodes: make([]node, 1), tick: uint64(max(now, 0)) >> tickShift}
}

// set adds a timer. pop returns fn when its now has reached when, and at most one tick later.
func (w *wheel) set(when ucs.Time, fn func(now ucs.Time)) Timer {
	i := w.free
	if i == 0 {
		w.nodes = append(w.nodes, node{})
		i = uint32(len(w.nodes) - 1)
	} else {
		w.free = w.nodes[i].next
	}
	n := &w.nodes[i]
	n.fn, n.live = fn, true
	n.gen++
	// The tick is rounded up, so that the timer is not early. It is after the current one,
	// so that a timer that sets itself again does not keep pop busy.
	n.tick = max((uint64(max(when, 0))+1<<tickShift-1)>>tickShift, w.tick+1)
	w.link(i)
	return Timer(n.gen)<<32 | Timer(i)
}

// cancel removes t. It returns false if t has run, was canceled, or never existed.
func (w *wheel) cancel(t Timer) bool {
	i, gen := uint32(t), uint32(t>>32)
	if i == 0 || int(i) >= len(w.nodes) || w.nodes[i].gen != gen || !w.nodes[i].live {
		return false
	}
	w.unlink(i)
	w.release(i)
	return true
}

// pop removes an expired timer and returns its function, or nil if none has expired.
func (w *wheel) pop(now ucs.Time) func(now ucs.Time) {
	target := uint64(max(now, 0)) >> tickShift
	for {
		level, slot, start := w.first()
		if level < 0 || start > target {
			w.tick = max(w.tick, target)
			return nil
		}
		w.tick = start
		if level == 0 {
			i := w.heads[0][slot]
			fn := w.nodes[i].fn
			w.unlink(i)
			w.release(i)
			return fn
		}
		w.cascade(level, slot)
	}
}

// cascade moves the timers of the slot that w.tick has reached to lower levels.
func (w *wheel) cascade(level, slot int) {
	i := w.heads[level][slot]
	w.heads[level][slot] = 0
	w.used[level] &^= 1 << slot
	for i != 0 {
		next := w.nodes[i].next
		w.link(i)
		i = next
	}
}

// first returns the earliest used slot and its first tick; level -1: the wheel is empty.
func (w *wheel) first() (level, slot int, start uint64) {
	for level, used := range w.used {
		if used == 0 {
			continue
		}
		slot = bits.TrailingZeros64(used)
		shift := uint(level) * slotBits
		above := w.tick >> (shift + slotBits) << (shift + slotBits)
		return level, slot, above | uint64(slot)<<shift
	}
	return -1, 0, 0
}

// next returns a time before which pop returns nil: the deadline of the earliest timer, or an
// earlier time if that is far off. It returns never for an empty wheel.
func (w *wheel) next() ucs.Time {
	level, _, start := w.first()
	if level < 0 || start > math.MaxInt64>>tickShift {
		return never
	}
	return ucs.Time(start << tickShift)
}

func (w *wheel) link(i uint32) {
	n := &w.nodes[i]
	level := (bits.Len64((n.tick^w.tick)|(slots-1)) - 1) / slotBits
	slot := n.tick >> (uint(level) * slotBits) & (slots - 1)
	n.level, n.slot = uint8(level), uint8(slot)
	head := &w.heads[level][slot]
	n.prev, n.next = 0, *head
	if *head != 0 {
		w.nodes[*head].prev = i
	}
	*head = i
	w.used[level] |= 1 << slot
}

func (w *wheel) unlink(i uint32) {
	n := &w.nodes[i]
	if n.next != 0 {
		w.nodes[n.next].prev = n.prev
	}
	if n.prev != 0 {
		w.nodes[n.prev].next = n.next
		return
	}
	w.heads[n.level][n.slot] = n.next
	if n.next == 0 {
		w.used[n.level] &^= 1 << n.slot
	}
}

func (w *wheel) release(i uint32) {
	n := &w.nodes[i]
	n.fn, n.live = nil, false
	n.next = w.free
	w.free = i
}
