package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// owner is the ownership word of a queue pair's machines, or of a device's link
// (engine.rx). Only the owner runs them. For a queue pair the word also contains the
// posters' lock, so one compare-and-swap takes both when both are free.
//
// Invariant: work that is published before takeOrNote or posted is seen by the present
// owner or by the next one. If the word is taken, both functions find ownNote set, or set
// it with a compare-and-swap that fails when the owner leaves. give releases the word with
// one atomic addition, which returns the flags of that moment. If ownNote is set, give
// takes the word again, clears the flag and returns false: the caller must look for work
// again. If another goroutine takes the word first, that one inherits the flag.
//
// The upper bits count releases, so that left can wait for the present owner without
// waiting for the next.
type owner struct{ word atomic.Uint32 }

// Bits of the word; the higher bits count releases.
const (
	ownTaken = 1 << iota
	ownNote  // work was published while the word was taken
	ownPost  // the posters' lock
	ownOnce  // one release
)

// taken reports whether there is an owner.
func (o *owner) taken() bool { return o.word.Load()&ownTaken != 0 }

// take tries to become the owner. It never waits.
func (o *owner) take() bool {
	v := o.word.Load()
	return v&ownTaken == 0 && (o.word.CompareAndSwap(v, v|ownTaken) || o.takeSlow())
}

// takeSlow retries after a failed compare-and-swap: only the posters' lock may have
// changed.
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

// takeOrNote tries to become the owner. If it fails, the present owner looks for work
// before it leaves.
func (o *owner) takeOrNote() bool { return o.swapOrNote(0) }

// swapOrNote is takeOrNote. In the same step it clears the bits off.
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

// give releases the ownership. If ownNote is set, it clears the flag and returns false:
// the caller is still the owner, must look for work and call give again.
func (o *owner) give() bool {
	return o.word.Add(ownOnce-ownTaken)&ownNote == 0 || o.giveSlow()
}

// giveAll is give, and releases the posters' lock too.
func (o *owner) giveAll() bool {
	return o.word.Add(ownOnce-ownTaken-ownPost)&ownNote == 0 || o.giveSlow()
}

// giveSlow handles a released word with ownNote set. If there is a next owner already,
// that one serves the flag.
func (o *owner) giveSlow() bool {
	if !o.take() {
		return true
	}
	o.word.And(^uint32(ownNote))
	return false
}

// giveAlone releases a word in which no goroutine sets flags.
func (o *owner) giveAlone() { storeRelease32(&o.word, o.word.Load()&^ownTaken+ownOnce) }

// enter takes the posters' lock, and the ownership if it is free.
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

// posted releases the posters' lock and tries to become the owner. If it fails, the
// present owner looks for posted work before it leaves.
func (o *owner) posted() bool { return o.swapOrNote(ownPost) }

// unlock releases the posters' lock and leaves the ownership unchanged.
func (o *owner) unlock() { o.word.And(^uint32(ownPost)) }

// wait spins until it has the ownership. The control path, growSends and fromFabric call
// it.
func (o *owner) wait() {
	for k := 0; !o.take(); k++ {
		relax(k)
	}
}

// left returns once the goroutine that is the owner now has released the ownership.
func (o *owner) left() {
	const rest = ^uint32(ownNote | ownPost)
	v := o.word.Load()
	for k := 0; v&ownTaken != 0 && o.word.Load()&rest == v&rest; k++ {
		relax(k)
	}
}

// relax is called in the k-th round of a spin loop.
func relax(k int) {
	if k < 64 {
		cpu.Pause()
	} else {
		cpu.Yield()
	}
}
