package async

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// sleeper is where the async goroutine sleeps: in Go's netpoller, on the set of
// all watched descriptors, so that it holds no thread meanwhile.
type sleeper struct {
	set    *fdset
	file   *os.File // a duplicate of the set's descriptor
	conn   syscall.RawConn
	kicked atomic.Bool
	found  events
	over   func(uintptr) bool // looks whether the sleep is
}

func newSleeper() (*sleeper, error) {
	set, err := newFDSet()
	if err != nil {
		return nil, err
	}
	s := &sleeper{set: set}
	s.over = func(uintptr) bool {
		s.set.look(&s.found)
		return s.found.n > 0 || s.kicked.Load()
	}
	if err := s.intoPoller(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *sleeper) intoPoller() error {
	fd, err := unix.FcntlInt(uintptr(s.set.ep.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate epoll descriptor: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // how os.NewFile knows to poll it
		return errors.Join(fmt.Errorf("epoll descriptor: %w", err), unix.Close(fd))
	}
	s.file = os.NewFile(uintptr(fd), "async")
	if err := s.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("epoll descriptor in the netpoller: %w", err)
	}
	s.conn, err = s.file.SyscallConn()
	return err
}

// until sleeps until wake, a kick, or an event of a watched descriptor. Only the
// async goroutine calls it; what it found is in s.found.
func (s *sleeper) until(wake ucs.Time) {
	s.found.n = 0
	d := wake.Sub(ucs.Now())
	switch {
	case wake == never:
		_ = s.file.SetReadDeadline(time.Time{}) // a file in the netpoller takes any deadline
	case d <= 0:
		s.set.look(&s.found)
		return
	default:
		_ = s.file.SetReadDeadline(time.Now().Add(d))
	}
	// The deadline is set before the look at kicked, and kick does it the other
	// way round: one of the two sees the other.
	_ = s.conn.Read(s.over) // an error is the deadline
	s.kicked.Store(false)
}

// kick ends the sleep, or the next one if there is none. From any goroutine.
func (s *sleeper) kick() {
	s.kicked.Store(true)
	_ = s.file.SetReadDeadline(time.Unix(1, 0)) // fails after Close only
}

// run calls the functions of the descriptors that until found.
func (s *sleeper) run() { s.set.run(&s.found) }

func (s *sleeper) close() error {
	var err error
	if s.file != nil {
		err = s.file.Close()
	}
	return errors.Join(err, s.set.close())
}
