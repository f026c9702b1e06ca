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
	"github.com/goucx/goucx/ucs/shmem"
)

// sleeper waits on behalf of the async goroutine: in Go's netpoller, on the epoll set of all
// watched descriptors. So the goroutine occupies no thread while it sleeps.
type sleeper struct {
	set    *fdset
	file   *os.File // a duplicate of the descriptor of set
	conn   syscall.RawConn
	kicked atomic.Bool
	found  events
	ended  func(uintptr) bool // reports whether the sleep has ended
}

func newSleeper() (*sleeper, error) {
	ep, err := shmem.NewEpoll()
	if err != nil {
		return nil, err
	}
	s := &sleeper{set: &fdset{ep: ep, byFD: map[int]watch{}, byID: map[uint64]func(){}}}
	s.ended = func(uintptr) bool {
		s.set.poll(&s.found)
		return s.found.n > 0 || s.kicked.Load()
	}
	if err := s.registerPoller(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// registerPoller registers the epoll descriptor with Go's netpoller.
func (s *sleeper) registerPoller() error {
	fd, err := unix.FcntlInt(uintptr(s.set.ep.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate epoll descriptor: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // os.NewFile registers only non-blocking descriptors
		return errors.Join(fmt.Errorf("epoll descriptor: %w", err), unix.Close(fd))
	}
	s.file = os.NewFile(uintptr(fd), "async")
	if err := s.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("epoll descriptor in the netpoller: %w", err)
	}
	s.conn, err = s.file.SyscallConn()
	return err
}

// sleep sleeps until wake, a kick, or an event of a watched descriptor, and stores the
// events in s.found. Only the async goroutine calls it.
func (s *sleeper) sleep(wake ucs.Time) {
	s.found.n = 0
	d := wake.Sub(ucs.Now())
	switch {
	case wake == never:
		_ = s.file.SetReadDeadline(time.Time{}) // cannot fail: the file is in the netpoller
	case d <= 0:
		s.set.poll(&s.found)
		return
	default:
		_ = s.file.SetReadDeadline(time.Now().Add(d))
	}
	// sleep sets the deadline, then reads kicked. wakeUp stores kicked, then sets the
	// deadline. So sleep sees kicked, or wakeUp's deadline ends it.
	_ = s.conn.Read(s.ended) // the only error is the deadline
	s.kicked.Store(false)
}

// wakeUp ends the current sleep, or the next one if there is none. Any goroutine may call it.
func (s *sleeper) wakeUp() {
	s.kicked.Store(true)
	_ = s.file.SetReadDeadline(time.Unix(1, 0)) // fails only after Close
}

// run calls the functions of the ready descriptors.
func (s *sleeper) run() { s.set.run(&s.found) }

func (s *sleeper) close() error {
	var err error
	if s.file != nil {
		err = s.file.Close()
	}
	return errors.Join(err, s.set.close())
}
