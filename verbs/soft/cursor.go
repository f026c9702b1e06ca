package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// cursor is one end of a ring: a running number and a lock in one word. One store
// publishes the number and unlocks.
//
// Each end of a ring has its own lock, so producers and consumers never wait for each
// other. An end that one goroutine uses needs no lock, whatever happens at the other.
//
// Invariant: end is a release store that follows the stores to the ring. A goroutine
// that loads the number with pos, begin or lock sees them.
type cursor struct{ word atomic.Uint64 }

const cursorLocked = 1

// pos returns the number. Any goroutine may call it; the number may change at once.
func (c *cursor) pos() uint64 { return c.word.Load() >> 1 }

// acquire returns the number. Unless single is set, it locks the cursor.
func (c *cursor) acquire(single bool) uint64 {
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
		spin(k)
	}
}

// publish publishes the number and all stores before it, and unlocks. It pairs with the
// loads of pos, begin and lock.
func (c *cursor) publish(pos uint64) { cpu.StoreRelease(&c.word, pos<<1) }
