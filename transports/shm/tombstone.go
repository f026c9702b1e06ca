package shm

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// maxTombstones is the maximum number of tombstones of a domain.
const maxTombstones = 64

// keepTombstone keeps the socket file of a closed worker as a tombstone, until the domain closes
// or there are more than maxTombstones. A peer that dials it learns that the worker existed
// and has closed. Stale-socket sweeps remove it like that of a crashed worker; the new
// modification time delays that.
func (d *domain) keepTombstone(path string) error {
	now := time.Now() //nolint:forbidigo // file times use the wall clock
	err := os.Chtimes(path, now, now)
	d.mu.Lock()
	d.tombstones = append(d.tombstones, path)
	var oldest string
	if len(d.tombstones) > maxTombstones {
		oldest, d.tombstones = d.tombstones[0], d.tombstones[1:]
	}
	d.mu.Unlock()
	if oldest != "" {
		err = errors.Join(err, removeFile(oldest))
	}
	return ignoreNotExist(err)
}

// removeTombstones removes all tombstones when the domain closes.
func (d *domain) removeTombstones() (err error) {
	for _, path := range d.tombstones {
		err = errors.Join(err, removeFile(path))
	}
	d.tombstones = nil
	return err
}

// removeFile removes a file that another process may have removed already.
func removeFile(path string) error { return ignoreNotExist(os.Remove(path)) }

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
