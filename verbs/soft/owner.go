package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// owner is the ownership word of a queue pair's machines, or of a device's link
// (engine.rx). Only the owner runs them. For a queue pair the word also contains the
// posters' lock, so one compare-and-swap takes both when both are free.
//
// Invariant: work that is published before acquireOrNotify or posted is seen by the present
// owner or by the next one. If the word is taken, both functions find ownPending set, or set
// it with a compare-and-swap that fails when the owner leaves. give releases the word with
// one atomic addition, which returns the flags of that moment. If ownPending is set, give
// takes the word again, clears the flag and returns false: the caller must look for work
// again. If another goroutine takes the word first, that one inherits the flag.
//
// The upper bits count releases, so that left can wait for the present owner without
// waiting for the next.
type owner struct {
	word atomic.Uint32
	// postLock is ownPost, or 0 if posters take no lock: one goroutine at a time posts.
	postLock uint32
}

// Bits of the word; the higher bits count releases.
const (
	ownHeld     = 1 << iota
	ownPending  // work was published while the word was taken
	ownPost     // the posters' lock
	ownReleased // one release
)

// held reports whether there is an owner.
func (o *owner) held() bool { return o.word.Load()&ownHeld != 0 }

// tryAcquire tries to become the owner. It never waits.
func (o *owner) tryAcquire() bool {
	v := o.word.Load()
	return v&ownHeld == 0 && (o.word.CompareAndSwap(v, v|ownHeld) || o.tryAcquireSlow())
}

// tryAcquireSlow retries after a failed compare-and-swap: only the posters' lock may have
// changed.
func (o *owner) tryAcquireSlow() bool {
	for {
		v := o.word.Load()
		if v&ownHeld != 0 {
			return false
		}
		if o.word.CompareAndSwap(v, v|ownHeld) {
			return true
		}
	}
}

// acquireOrNotify tries to become the owner. If it fails, the present owner looks for work
// before it leaves.
func (o *owner) acquireOrNotify() bool { return o.clearAndAcquire(0) }

// clearAndAcquire is acquireOrNotify. In the same step it clears the bits off.
func (o *owner) clearAndAcquire(off uint32) bool {
	for {
		v := o.word.Load()
		if v&ownHeld == 0 {
			if o.word.CompareAndSwap(v, v&^off|ownHeld) {
				return true
			}
		} else if v&ownPending != 0 && v&off == 0 || o.word.CompareAndSwap(v, v&^off|ownPending) {
			return false
		}
	}
}

// tryRelease releases the ownership. If ownPending is set, it clears the flag and returns false:
// the caller is still the owner, must look for work and call give again.
func (o *owner) tryRelease() bool {
	return o.word.Add(ownReleased-ownHeld)&ownPending == 0 || o.releaseSlow()
}

// tryReleaseAll is give, and releases the posters' lock too.
func (o *owner) tryReleaseAll() bool {
	return o.word.Add(ownReleased-ownHeld-o.postLock)&ownPending == 0 || o.releaseSlow()
}

// releaseSlow handles a released word with ownPending set. If there is a next owner already,
// that one serves the flag.
func (o *owner) releaseSlow() bool {
	if !o.tryAcquire() {
		return true
	}
	o.word.And(^uint32(ownPending))
	return false
}

// release releases a word in which no goroutine sets flags.
func (o *owner) release() { cpu.StoreRelease32(&o.word, o.word.Load()&^ownHeld+ownReleased) }

// lockPosts takes the posters' lock, and the ownership if it is free.
func (o *owner) lockPosts() (owned bool) {
	v := o.word.Load()
	if v&(ownHeld|o.postLock) == 0 && o.word.CompareAndSwap(v, v|ownHeld|o.postLock) {
		return true
	}
	return o.lockPostsSlow()
}

func (o *owner) lockPostsSlow() (owned bool) {
	for k := 0; ; k++ {
		v := o.word.Load()
		if v&o.postLock == 0 && o.word.CompareAndSwap(v, v|ownHeld|o.postLock) {
			return v&ownHeld == 0
		}
		spin(k)
	}
}

// unlockPosts releases the posters' lock and leaves the ownership unchanged.
func (o *owner) unlockPosts() { o.word.And(^o.postLock) }

// acquire spins until it has the ownership. The control path, growSends and handleFabricPacket call
// it.
func (o *owner) acquire() {
	for k := 0; !o.tryAcquire(); k++ {
		spin(k)
	}
}

// awaitRelease returns once the goroutine that is the owner now has released the ownership.
func (o *owner) awaitRelease() {
	const rest = ^uint32(ownPending | ownPost)
	v := o.word.Load()
	for k := 0; v&ownHeld != 0 && o.word.Load()&rest == v&rest; k++ {
		spin(k)
	}
}

// spin is called in the k-th round of a spin loop.
func spin(k int) {
	if k < 64 {
		cpu.Pause()
	} else {
		cpu.Yield()
	}
}

// spinlock is a spinlock, held for a few instructions and never during a system call.
type spinlock struct{ word atomic.Uint32 }

func (l *spinlock) lock() {
	for k := 0; !l.word.CompareAndSwap(0, 1); k++ {
		spin(k)
	}
}

func (l *spinlock) unlock() { cpu.StoreRelease32(&l.word, 0) }
