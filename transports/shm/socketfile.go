package shm

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs/shmem"
)

const (
	// staleAge is the minimum age of a socket file that is probed. A younger socket may
	// not listen yet.
	staleAge = 10 * time.Second
	// maxSweep is the maximum number of files probed in one sweep.
	maxSweep = 64
)

// sweepSockets removes the socket files of this user's workers on which no process
// listens. A live worker sees a connection that closes without OPEN.
func sweepSockets(dir string) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	tried := 0
	for _, n := range names {
		i, err := n.Info()
		if err != nil || i.Mode()&os.ModeSocket == 0 {
			continue
		}
		digits, ok := strings.CutPrefix(n.Name(), socketPrefix)
		if b, err := hex.DecodeString(digits); !ok || err != nil || len(b) != len(ifaceName{}) {
			continue // not the socket of an iface
		}
		if time.Since(i.ModTime()) < staleAge { //nolint:forbidigo // file times use the wall clock
			continue
		}
		if tried++; tried > maxSweep {
			return
		}
		path := filepath.Join(dir, n.Name())
		c, err := shmem.Dial(path)
		if err == nil {
			_ = c.Close()
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(path) // another process may have removed it
		}
	}
}

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

// removeFile removes a file that another process may have removed already.
func removeFile(path string) error { return ignoreNotExist(os.Remove(path)) }

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
