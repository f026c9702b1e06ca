//go:build !linux

package platform

import (
	"fmt"
	"runtime"

	"github.com/goucx/goucx/ucs"
)

// probe refuses everything: what goucx uses is Linux's.
func probe() []Feature {
	var all []Feature
	for _, name := range []string{
		Memfd, AbstractSockets, FDPassing, EventFD, GlobalBarrier, PrivateBarrier, PidfdOpen, PeerPidfd, CrossProcessCopy,
	} {
		all = append(all, Feature{Name: name, Reason: "not used on " + runtime.GOOS})
	}
	return all
}

// TryFDPassing answers that nothing is used here.
func TryFDPassing() error { return fmt.Errorf("not used on %s: %w", runtime.GOOS, ucs.ErrUnsupported) }

func inode(string) uint64 { return 0 }
