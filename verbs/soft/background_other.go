//go:build !linux

package soft

import (
	"os"
	"time"

	"github.com/goucx/goucx/ucs"
)

type poller struct{ file *os.File }

func (u *udpPort) newPoller() (*poller, error) { return nil, ucs.ErrUnsupported }
func (p *poller) addSocket() error             { return ucs.ErrUnsupported }
func (p *poller) removeSocket()                {}
func (p *poller) setDeadline(time.Duration)    {}
func (p *poller) wait()                        {}
