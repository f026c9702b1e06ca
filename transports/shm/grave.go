package shm

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// graveMost is the maximum number of tombstones of a domain.
const graveMost = 64

// leave keeps the socket file of a closed worker as a tombstone, until the domain closes
// or there are more than graveMost. A peer that dials it learns that the worker existed
// and has closed. Stale-socket sweeps remove it like that of a crashed worker; the new
// modification time delays that.
func (d *domain) leave(path string) error {
	now := time.Now() //nolint:forbidigo // file times use the wall clock
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

// removeGraves removes all tombstones when the domain closes.
func (d *domain) removeGraves() (err error) {
	for _, path := range d.graves {
		err = errors.Join(err, remove(path))
	}
	d.graves = nil
	return err
}

// remove removes a file that another process may have removed already.
func remove(path string) error { return ignoreGone(os.Remove(path)) }

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
