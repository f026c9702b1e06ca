package shm

import (
	"encoding/hex"
	"errors"
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
		if err != nil || i.Mode()&os.ModeSocket == 0 || !isSocketName(n.Name()) {
			continue
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

// isSocketName reports whether name can be that of an iface's socket.
func isSocketName(name string) bool {
	digits, ok := strings.CutPrefix(name, socketPrefix)
	b, err := hex.DecodeString(digits)
	return ok && err == nil && len(b) == len(ifaceName{})
}
