//go:build !linux

package soft

import (
	"os"

	"github.com/goucx/goucx/ucs"
)

func (u *udpPort) polled() (*os.File, error) { return nil, ucs.ErrUnsupported }
