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
	// staleAge is how old a socket in UCX_SHM_SOCKET_DIR must be before it is
	// tried: a young one may not listen yet.
	staleAge = 10 * time.Second
	// staleMost is how many are tried at a time.
	staleMost = 64
)

// sweepSockets removes sockets of workers of this user that crashed: nobody
// listens on them. A worker that lives sees a connection that says nothing.
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
		if time.Since(i.ModTime()) < staleAge { //nolint:forbidigo // a file's time is the wall clock's
			continue
		}
		if tried++; tried > staleMost {
			return
		}
		path := filepath.Join(dir, n.Name())
		c, err := shmem.Dial(path)
		if err == nil {
			_ = c.Close()
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(path) // another may have been faster
		}
	}
}

// isSocketName reports whether a worker of ours may have made the file.
func isSocketName(name string) bool {
	digits, ok := strings.CutPrefix(name, socketPrefix)
	b, err := hex.DecodeString(digits)
	return ok && err == nil && len(b) == len(ifaceName{})
}
