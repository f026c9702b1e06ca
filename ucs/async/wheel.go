package async

import (
	"math"
	"math/bits"

	"github.com/goucx/goucx/ucs"
)

// A tick is 2^tickShift ns (16 us): the grain of all timers.
const tickShift = 14

const (
	slotBits = 6
	slots    = 1 << slotBits
	levels   = 9 // 54 bits of ticks: more than a Time holds
)

// never is the deadline of a wheel that holds nothing.
const never = ucs.Time(math.MaxInt64)

// Timer names a timer that was set; the zero Timer names none.
type Timer uint64

// node is a timer in its slot's list; index 0 ends lists and is never used.
type node struct {
	fn         func(now ucs.Time)
	tick       uint64
	next, prev uint32
	gen        uint32
	level      uint8
	slot       uint8
	live       bool
}

// wheel holds timers in slots of 64 per level; a level's slot spans a whole
// turn of the level below. Setting and cancelling are O(1), each timer moves
// down at most once per level. No clock inside: time is passed in and must not
// go back. Not safe for concurrent use.
//
// Invariant: every timer lies at the level of the highest 6-bit digit in which
// its tick differs from w.tick, so that on each level only slots above the
// current digit are in use (on the lowest one also that of the current digit),
// and the lowest used level holds the earliest timer.
type wheel struct {
	nodes []node
	free  uint32
	tick  uint64 // nothing before it is left
	used  [levels]uint64
	heads [levels][slots]uint32
}

func newWheel(now ucs.Time) *wheel {
	return &wheel{nodes: make([]node, 1), tick: uint64(max(now, 0)) >> tickShift}
}

// set arranges that pop gives fn once its now has reached when; never earlier,
// one tick later at most.
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
	// Rounded up, so that it is not early; after the current tick, so that a
	// timer that sets itself again does not keep pop busy.
	n.tick = max((uint64(max(when, 0))+1<<tickShift-1)>>tickShift, w.tick+1)
	w.link(i)
	return Timer(n.gen)<<32 | Timer(i)
}

// cancel forgets t; false if it ran, was cancelled before, or never was.
func (w *wheel) cancel(t Timer) bool {
	i, gen := uint32(t), uint32(t>>32)
	if i == 0 || int(i) >= len(w.nodes) || w.nodes[i].gen != gen || !w.nodes[i].live {
		return false
	}
	w.unlink(i)
	w.release(i)
	return true
}

// pop removes a timer that is due at now and gives its function; nil when none
// is.
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

// first gives the earliest used slot and its first tick; level -1 if none.
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

// next is the time before which pop gives nothing: the deadline of the earliest
// timer, or somewhat earlier when it is far off; never for an empty wheel.
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
