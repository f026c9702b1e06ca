//go:build !linux

package soft

import (
	"errors"

	"golang.org/x/sys/unix"
)

// flag is the descriptor of a bell: a pipe. The zero flag has none.
type flag struct {
	made bool
	fds  [2]int
}

// open returns the descriptor, and creates it on the first call. up is its first state.
// It returns -1 if the system provides none.
func (f *flag) open(up bool) int {
	if f.made {
		return f.fds[0]
	}
	if unix.Pipe(f.fds[:]) != nil {
		return -1
	}
	for _, fd := range f.fds {
		unix.CloseOnExec(fd)
		if unix.SetNonblock(fd, true) != nil {
			_ = f.shut()
			return -1
		}
	}
	f.made = true
	if up {
		f.raise()
	}
	return f.fds[0]
}

func (f *flag) raise() {
	if f.made {
		_, _ = unix.Write(f.fds[1], []byte{1}) // a full pipe is readable already
	}
}

func (f *flag) lower() {
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

func (f *flag) close() error {
	if !f.made {
		return nil
	}
	f.made = false
	return f.shut()
}

func (f *flag) shut() error { return errors.Join(unix.Close(f.fds[0]), unix.Close(f.fds[1])) }
