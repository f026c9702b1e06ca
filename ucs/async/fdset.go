package async

import (
	"fmt"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// eventBatch is the largest number of ready descriptors that one call of poll returns.
const eventBatch = 16

// watch is a descriptor of a set.
type watch struct {
	id     uint64
	events uint32
}

// fdset is a set of watched descriptors with their functions. An event carries an ID that
// is never reused. So an event of a closed descriptor is not attributed to a new one with
// the same number. All methods are safe for concurrent use. The functions run without the
// lock.
type fdset struct {
	ep *shmem.Epoll

	mu     sync.Mutex // guards the fields below
	byFD   map[int]watch
	byID   map[uint64]func()
	lastID uint64
}

func (s *fdset) add(fd int, events uint32, fn func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	if err := s.ep.Add(fd, s.lastID, events); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	s.byFD[fd] = watch{s.lastID, events}
	s.byID[s.lastID] = fn
	return nil
}

// rearm enables further events of a one-shot descriptor, if it is still watched.
func (s *fdset) rearm(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.byFD[fd]; ok {
		_ = s.ep.Rearm(fd, w.id, w.events) // cannot fail: the descriptor is in the set
	}
}

func (s *fdset) del(fd int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.byFD[fd]
	if !ok {
		return fmt.Errorf("unwatch descriptor %d: %w", fd, ucs.ErrInvalid)
	}
	delete(s.byFD, fd)
	delete(s.byID, w.id)
	return s.ep.Del(fd)
}

// events is the result of poll.
type events struct {
	list [eventBatch]shmem.Event
	n    int
}

// poll polls for ready descriptors without waiting.
func (s *fdset) poll(e *events) {
	n, err := s.ep.Wait(e.list[:], 0)
	if err != nil { // closed: nothing is watched
		n = 0
	}
	e.n = n
}

// run calls the functions of the ready descriptors and returns their number.
func (s *fdset) run(e *events) int {
	ran := 0
	for _, ev := range e.list[:e.n] {
		s.mu.Lock()
		fn := s.byID[ev.Data]
		s.mu.Unlock()
		if fn != nil { // else an earlier function of this run has removed it
			fn()
			ran++
		}
	}
	return ran
}

func (s *fdset) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ep.Close()
}
