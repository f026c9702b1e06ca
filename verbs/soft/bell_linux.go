package soft

import "github.com/goucx/goucx/ucs/shmem"

// flag is the descriptor of a bell: an eventfd. The zero flag has none.
type flag struct{ fd *shmem.EventFD }

// open returns the descriptor, and creates it on the first call. up is its first state.
// It returns -1 if the system provides none.
func (f *flag) open(up bool) int {
	if f.fd == nil {
		fd, err := shmem.NewEventFD()
		if err != nil {
			return -1
		}
		f.fd = fd
		if up {
			f.raise()
		}
	}
	return f.fd.FD()
}

func (f *flag) raise() {
	if f.fd != nil {
		_ = f.fd.Signal() // fails only after close
	}
}

func (f *flag) lower() {
	if f.fd != nil {
		f.fd.Drain()
	}
}

func (f *flag) close() error {
	if f.fd == nil {
		return nil
	}
	return f.fd.Close()
}
