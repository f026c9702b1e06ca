package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// owner is the right to run a queue pair's machines, or a device's link. The word
// counts how often it was given back, so that others can wait for all who were
// inside.
type owner struct{ word atomic.Uint32 }

// Bits of the word; the rest counts.
const (
	ownTaken = 1 << iota
	ownNote  // there is work that came meanwhile
	ownOnce  // one turn
)

// take tries to become the owner. It never waits.
func (o *owner) take() bool {
	v := o.word.Load()
	return v&ownTaken == 0 && o.word.CompareAndSwap(v, v|ownTaken)
}

// takeOrNote tries to become the owner, or has the owner look for work before it
// leaves.
func (o *owner) takeOrNote() bool {
	for {
		v := o.word.Load()
		if v&ownTaken == 0 {
			if o.word.CompareAndSwap(v, v|ownTaken) {
				return true
			}
		} else if v&ownNote != 0 || o.word.CompareAndSwap(v, v|ownNote) {
			return false
		}
	}
}

// give ends the ownership, unless a note was left: then it is taken off, and
// false says to look for work and give again.
func (o *owner) give() bool {
	v := o.word.Load()
	return v&ownNote == 0 && o.word.CompareAndSwap(v, v&^ownTaken+ownOnce) || o.giveSlow()
}

func (o *owner) giveSlow() bool {
	for {
		v := o.word.Load()
		if v&ownNote != 0 {
			if o.word.CompareAndSwap(v, v&^ownNote) {
				return false
			}
		} else if o.word.CompareAndSwap(v, v&^ownTaken+ownOnce) {
			return true
		}
	}
}

// wait takes the ownership, however long that lasts: the control path.
func (o *owner) wait() {
	for k := 0; !o.take(); k++ {
		relax(k)
	}
}

// left returns when whoever is inside now has left.
func (o *owner) left() {
	v := o.word.Load()
	for k := 0; v&ownTaken != 0 && o.word.Load()&^ownNote == v&^ownNote; k++ {
		relax(k)
	}
}

// relax is a moment of a loop that waits for another goroutine.
func relax(k int) {
	if k < 64 {
		cpu.Pause()
	} else {
		cpu.Yield()
	}
}
