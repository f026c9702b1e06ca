//go:build linux && cgo && ibverbs

package ibv

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// unlimited is a limit that is none.
const unlimited = ^uint64(0)

// memlock returns how many bytes the process may lock.
func memlock() (bytes uint64, known bool) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return 0, false
	}
	return r.Cur, true
}

// sizeText returns a size as ulimit -l shows it.
func sizeText(n uint64) string {
	if n == unlimited {
		return "unlimited"
	}
	return fmt.Sprintf("%d kB", n>>10)
}
