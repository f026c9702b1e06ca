package soft

import "github.com/goucx/goucx/ucs/shmem"

// readyFD is the descriptor of a bell: an eventfd. The zero flag has none.
type readyFD struct{ fd *shmem.EventFD }

// open returns the descriptor, and creates it on the first call. set is its first state.
// It returns -1 if the system provides none.
func (f *readyFD) open(set bool) int {
	if f.fd == nil {
		fd, err := shmem.NewEventFD()
		if err != nil {
			return -1
		}
		f.fd = fd
		if set {
			f.set()
		}
	}
	return f.fd.FD()
}

func (f *readyFD) set() {
	if f.fd != nil {
		_ = f.fd.Signal() // fails only after close
	}
}

func (f *readyFD) clear() {
	if f.fd != nil {
		f.fd.Drain()
	}
}

func (f *readyFD) close() error {
	if f.fd == nil {
		return nil
	}
	return f.fd.Close()
}
