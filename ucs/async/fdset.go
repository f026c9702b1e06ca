package async

import (
	"fmt"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// batch is how many ready descriptors one look takes.
const batch = 16

// watch is one descriptor of a set.
type watch struct {
	id     uint64
	events uint32
}

// fdset is a set of watched descriptors with their functions. Events carry an
// id that is never used twice, so that one of a descriptor watched anew under
// the same number is not taken for the old one's. Safe for concurrent use; the
// functions run outside the lock.
type fdset struct {
	ep *shmem.Epoll

	mu   sync.Mutex // guards all below
	byFD map[int]watch
	byID map[uint64]func()
	last uint64
}

func newFDSet() (*fdset, error) {
	ep, err := shmem.NewEpoll()
	if err != nil {
		return nil, err
	}
	return &fdset{ep: ep, byFD: map[int]watch{}, byID: map[uint64]func(){}}, nil
}

func (s *fdset) add(fd int, events uint32, fn func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	if err := s.ep.Add(fd, s.last, events); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	s.byFD[fd] = watch{s.last, events}
	s.byID[s.last] = fn
	return nil
}

// rearm lets a one-shot descriptor tell again; one that is gone stays gone.
func (s *fdset) rearm(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.byFD[fd]; ok {
		_ = s.ep.Rearm(fd, w.id, w.events) // it is in the set: nothing to fail
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

// events is what one look found.
type events struct {
	list [batch]shmem.Event
	n    int
}

// look finds the ready descriptors, without waiting.
func (s *fdset) look(e *events) {
	n, err := s.ep.Wait(e.list[:], 0)
	if err != nil { // closed: nothing is watched any more
		n = 0
	}
	e.n = n
}

// run calls the functions of what look found and returns how many there were.
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
