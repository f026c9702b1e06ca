//go:build !linux

package async

import (
	"time"

	"github.com/goucx/goucx/ucs"
)

// sleeper waits on behalf of the async goroutine. Without epoll it watches no descriptors.
type sleeper struct {
	set  *fdset
	wake chan struct{}
}

func newSleeper() (*sleeper, error) { return &sleeper{wake: make(chan struct{}, 1)}, nil }

func (s *sleeper) sleep(wake ucs.Time) {
	if wake == never {
		<-s.wake
		return
	}
	timer := time.NewTimer(wake.Sub(ucs.Now()))
	defer timer.Stop()
	select {
	case <-s.wake:
	case <-timer.C:
	}
}

func (s *sleeper) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sleeper) run() {}

func (s *sleeper) close() error { return nil }
