package perf

import (
	"sync"

	"github.com/goucx/goucx/ucs/cpu"
)

// couple is the group of two sides in one process.
type couple struct {
	index  int
	in     <-chan []byte // from the other side
	out    chan<- []byte
	shared *coupled
}

// coupled is the state that the two sides share.
type coupled struct {
	failed chan struct{} // closed when either side has failed
	once   sync.Once
}

// together runs f for both sides, each on its own goroutine, until both have returned. When one
// fails, the other receives errOtherThread.
func together(f func(g Group) error) error {
	s := &coupled{failed: make(chan struct{})}
	there, back := make(chan []byte, 1), make(chan []byte, 1)
	sides := [2]*couple{{0, back, there, s}, {1, there, back, s}}
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
func (c *couple) Index() int { return c.index }

// Size returns 2.
func (c *couple) Size() int { return 2 }

// Exchange swaps a blob with the other side.
func (c *couple) Exchange(own []byte) ([]byte, error) {
	c.out <- own // never blocks: each side receives one before it sends its next
	select {
	case theirs := <-c.in:
		return theirs, nil
	case <-c.shared.failed:
		return nil, errOtherThread
	}
}

// Barrier returns when both sides have entered it.
func (c *couple) Barrier(progress func()) error {
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
func (c *couple) Err() error {
	select {
	case <-c.shared.failed:
		return errOtherThread
	default:
		return nil
	}
}
