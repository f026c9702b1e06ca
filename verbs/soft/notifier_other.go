//go:build !linux

package soft

import (
	"errors"

	"golang.org/x/sys/unix"
)

// readyFD is the descriptor of a bell: a pipe. The zero flag has none.
type readyFD struct {
	made bool
	fds  [2]int
}

// open returns the descriptor, and creates it on the first call. set is its first state.
// It returns -1 if the system provides none.
func (f *readyFD) open(set bool) int {
	if f.made {
		return f.fds[0]
	}
	if unix.Pipe(f.fds[:]) != nil {
		return -1
	}
	for _, fd := range f.fds {
		unix.CloseOnExec(fd)
		if unix.SetNonblock(fd, true) != nil {
			_ = f.closePipe()
			return -1
		}
	}
	f.made = true
	if set {
		f.set()
	}
	return f.fds[0]
}

func (f *readyFD) set() {
	if f.made {
		_, _ = unix.Write(f.fds[1], []byte{1}) // a full pipe is readable already
	}
}

func (f *readyFD) clear() {
	if !f.made {
		return
	}
	var b [64]byte
	for {
		if n, _ := unix.Read(f.fds[0], b[:]); n <= 0 {
			return
		}
	}
}

func (f *readyFD) close() error {
	if !f.made {
		return nil
	}
	f.made = false
	return f.closePipe()
}

func (f *readyFD) closePipe() error { return errors.Join(unix.Close(f.fds[0]), unix.Close(f.fds[1])) }
