//go:build !linux

package soft

import (
	"os"
	"time"

	"github.com/goucx/goucx/ucs"
)

type bed struct{ file *os.File }

func (u *udpPort) bed() (*bed, error) { return nil, ucs.ErrUnsupported }
func (b *bed) enter() error           { return ucs.ErrUnsupported }
func (b *bed) leave()                 {}
func (b *bed) alarm(time.Duration)    {}
func (b *bed) lie()                   {}
