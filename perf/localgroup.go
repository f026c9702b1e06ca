package perf

import (
	"sync"

	"github.com/goucx/goucx/ucs/cpu"
)

// localGroup is the group of two sides in one process.
type localGroup struct {
	index  int
	in     <-chan []byte // from the other side
	out    chan<- []byte
	shared *localShared
}

// localShared is the state that the two sides share.
type localShared struct {
	failed chan struct{} // closed when either side has failed
	once   sync.Once
}

// runBoth runs f for both sides, each on its own goroutine, until both have returned. When one
// fails, the other receives errOtherThread.
func runBoth(f func(g Group) error) error {
	s := &localShared{failed: make(chan struct{})}
	toSecond, toFirst := make(chan []byte, 1), make(chan []byte, 1)
	sides := [2]*localGroup{{0, toFirst, toSecond, s}, {1, toSecond, toFirst, s}}
	var errs [2]error
	var all sync.WaitGroup
	for i, g := range sides {
		all.Go(func() {
			if errs[i] = f(g); errs[i] != nil {
				s.once.Do(func() { close(s.failed) })
			}
		})
	}
	all.Wait()
	return first(errs[:])
}

// Index returns 0 for the measuring side.
func (c *localGroup) Index() int { return c.index }

// Size returns 2.
func (c *localGroup) Size() int { return 2 }

// Exchange swaps a blob with the other side.
func (c *localGroup) Exchange(own []byte) ([]byte, error) {
	c.out <- own // never blocks: each side receives one before it sends its next
	select {
	case other := <-c.in:
		return other, nil
	case <-c.shared.failed:
		return nil, errOtherThread
	}
}

// Barrier returns when both sides have entered it.
func (c *localGroup) Barrier(progress func()) error {
	if progress == nil {
		_, err := c.Exchange(nil)
		return err
	}
	c.out <- nil
	for spins := 1; ; spins++ {
		select {
		case <-c.in:
			return nil
		case <-c.shared.failed:
			return errOtherThread
		default:
		}
		progress()
		if spins%yieldSpins == 0 {
			cpu.Yield()
		}
	}
}

// Err reports whether the other side has failed.
func (c *localGroup) Err() error {
	select {
	case <-c.shared.failed:
		return errOtherThread
	default:
		return nil
	}
}
