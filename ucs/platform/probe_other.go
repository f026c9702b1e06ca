//go:build !linux

package platform

import (
	"fmt"
	"runtime"
	"time"

	"github.com/goucx/goucx/ucs"
)

// probe reports every feature as not available, since goucx uses them only on Linux.
func probe() []Feature {
	var all []Feature
	for _, name := range []string{
		Memfd, AbstractSockets, FDPassing, EventFD, GlobalBarrier, PrivateBarrier, PidfdOpen, PeerPidfd, CrossProcessCopy,
	} {
		all = append(all, Feature{Name: name, Reason: "not used on " + runtime.GOOS})
	}
	return all
}

// TryFDPassing returns ErrUnsupported.
func TryFDPassing() error { return fmt.Errorf("not used on %s: %w", runtime.GOOS, ucs.ErrUnsupported) }

func inode(string) uint64 { return 0 }

// TryCopy returns ErrUnsupported.
func TryCopy() (read, write error) {
	err := fmt.Errorf("not used on %s: %w", runtime.GOOS, ucs.ErrUnsupported)
	return err, err
}

// CopyCost returns 0.
func CopyCost() time.Duration { return 0 }

// OwnPIDNamespace returns false.
func OwnPIDNamespace() bool { return false }
