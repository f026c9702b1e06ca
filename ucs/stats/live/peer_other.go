//go:build !linux

package live

import (
	"net"

	"github.com/goucx/goucx/ucs"
)

// hasPeerCred is false: the system does not identify the other end of a socket.
const hasPeerCred = false

func peerUID(*net.UnixConn) (int, error) { return 0, ucs.ErrUnsupported }
