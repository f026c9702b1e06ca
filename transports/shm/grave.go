package shm

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// graveMost bounds the files that a domain leaves in UCX_SHM_SOCKET_DIR.
const graveMost = 64

// leave keeps the socket's file of a worker that closed, until the domain closes or
// many have: by it a peer that comes late knows that the worker was here, and is no
// more. Whoever sweeps takes it for that of a crashed one, but not at once.
func (d *domain) leave(path string) error {
	now := time.Now() //nolint:forbidigo // a file's time is the wall clock's
	err := os.Chtimes(path, now, now)
	d.mu.Lock()
	d.graves = append(d.graves, path)
	var oldest string
	if len(d.graves) > graveMost {
		oldest, d.graves = d.graves[0], d.graves[1:]
	}
	d.mu.Unlock()
	if oldest != "" {
		err = errors.Join(err, remove(oldest))
	}
	return ignoreGone(err)
}

// removeGraves is for the domain's end.
func (d *domain) removeGraves() (err error) {
	for _, path := range d.graves {
		err = errors.Join(err, remove(path))
	}
	d.graves = nil
	return err
}

// remove removes a file that somebody else may have removed.
func remove(path string) error { return ignoreGone(os.Remove(path)) }

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
