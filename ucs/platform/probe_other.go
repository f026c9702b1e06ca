//go:build !linux

package platform

import "runtime"

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

func inode(string) uint64 { return 0 }
