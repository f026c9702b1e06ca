package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// owner is the right to run a queue pair's machines, or a device's link, and the
// lock of those who post to the queue pair: one word, so that who finds both free
// gets both at once. The word counts how often the ownership was given back, so
// that others can wait for all who were inside.
type owner struct{ word atomic.Uint32 }

// Bits of the word; the rest counts.
const (
	ownTaken = 1 << iota
	ownNote  // there is work that came meanwhile
	ownPost  // somebody posts
	ownOnce  // one turn
)

// taken reports whether there is an owner now.
func (o *owner) taken() bool { return o.word.Load()&ownTaken != 0 }

// take tries to become the owner. It never waits.
func (o *owner) take() bool {
	v := o.word.Load()
	return v&ownTaken == 0 && (o.word.CompareAndSwap(v, v|ownTaken) || o.takeSlow())
}

// takeSlow goes on where the word changed, perhaps only the posters' lock.
func (o *owner) takeSlow() bool {
	for {
		v := o.word.Load()
		if v&ownTaken != 0 {
			return false
		}
		if o.word.CompareAndSwap(v, v|ownTaken) {
			return true
		}
	}
}

// takeOrNote tries to become the owner, or has the owner look for work before it
// leaves.
func (o *owner) takeOrNote() bool { return o.swapOrNote(0) }

// swapOrNote is takeOrNote that takes bits off besides.
func (o *owner) swapOrNote(off uint32) bool {
	for {
		v := o.word.Load()
		if v&ownTaken == 0 {
			if o.word.CompareAndSwap(v, v&^off|ownTaken) {
				return true
			}
		} else if v&ownNote != 0 && v&off == 0 || o.word.CompareAndSwap(v, v&^off|ownNote) {
			return false
		}
	}
}

// give ends the ownership, unless a note was left: then it is taken off, and
// false says to look for work and give again.
func (o *owner) give() bool {
	return o.word.Add(ownOnce-ownTaken)&ownNote == 0 || o.giveSlow()
}

// giveAll is give of the posters' lock, too.
func (o *owner) giveAll() bool {
	return o.word.Add(ownOnce-ownTaken-ownPost)&ownNote == 0 || o.giveSlow()
}

// giveSlow goes on after a word was given back with its note: the next owner does
// what it asks for, if there is one.
func (o *owner) giveSlow() bool {
	if !o.take() {
		return true
	}
	o.word.And(^uint32(ownNote))
	return false
}

// giveAlone is give of a word that nobody leaves notes in.
func (o *owner) giveAlone() { storeRelease32(&o.word, o.word.Load()&^ownTaken+ownOnce) }

// enter takes the posters' lock, and the ownership with it where that is free.
func (o *owner) enter() (owned bool) {
	v := o.word.Load()
	if v&(ownTaken|ownPost) == 0 && o.word.CompareAndSwap(v, v|ownTaken|ownPost) {
		return true
	}
	return o.enterSlow()
}

func (o *owner) enterSlow() (owned bool) {
	for k := 0; ; k++ {
		v := o.word.Load()
		if v&ownPost == 0 && o.word.CompareAndSwap(v, v|ownTaken|ownPost) {
			return v&ownTaken == 0
		}
		relax(k)
	}
}

// posted gives the posters' lock back and tries to become the owner, or has the
// owner look for what was posted.
func (o *owner) posted() bool { return o.swapOrNote(ownPost) }

// unlock gives the posters' lock back, and keeps the ownership as it is.
func (o *owner) unlock() { o.word.And(^uint32(ownPost)) }

// wait takes the ownership, however long that lasts: the control path.
func (o *owner) wait() {
	for k := 0; !o.take(); k++ {
		relax(k)
	}
}

// left returns when whoever is inside now has left.
func (o *owner) left() {
	const rest = ^uint32(ownNote | ownPost)
	v := o.word.Load()
	for k := 0; v&ownTaken != 0 && o.word.Load()&rest == v&rest; k++ {
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
