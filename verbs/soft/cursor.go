package soft

import "sync/atomic"

// cursor is one end of a ring: a running number, and the lock of those who move
// it, in one word, so that one store publishes and unlocks.
//
// The two ends of a ring have a lock each: who adds and who takes never wait for
// each other, and an end that one goroutine uses needs none, whatever goes on at
// the other.
type cursor struct{ word atomic.Uint64 }

const cursorLocked = 1

// pos is the number. It may be read by anyone, and be old at once.
func (c *cursor) pos() uint64 { return c.word.Load() >> 1 }

// begin gives the number and, unless single, locks.
func (c *cursor) begin(single bool) uint64 {
	if single {
		return c.pos()
	}
	return c.lock()
}

func (c *cursor) lock() uint64 {
	if v := c.word.Load(); v&cursorLocked == 0 && c.word.CompareAndSwap(v, v|cursorLocked) {
		return v >> 1
	}
	return c.lockSlow()
}

func (c *cursor) lockSlow() uint64 {
	for k := 0; ; k++ {
		v := c.word.Load()
		if v&cursorLocked == 0 && c.word.CompareAndSwap(v, v|cursorLocked) {
			return v >> 1
		}
		relax(k)
	}
}

// end publishes the number, all stores before it, and unlocks. It pairs with the
// loads of pos and begin.
func (c *cursor) end(pos uint64) { storeRelease(&c.word, pos<<1) }
