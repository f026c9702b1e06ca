package perf

import (
	"errors"
	"time"
)

// errOtherThread ends the threads whose fellow failed.
var errOtherThread = errors.New("another thread failed")

// watchPeriod is how often a watcher looks at the other side.
const watchPeriod = 50 * time.Millisecond

// watch has a goroutine look for the other side's failure while kernels cannot
// do it themselves: they sleep, or there are several and the group is for one.
// Until stop nobody else may use the group.
func (m *team) watch() (stop func()) {
	if len(m.links) == 1 && !m.p.Sleep {
		return func() {}
	}
	for _, l := range m.links {
		l.watched = true
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(watchPeriod)
		defer t.Stop()
		for {
			select {
			case <-end:
				return
			case <-t.C:
				if err := m.g.Err(); err != nil {
					m.failAll(err)
					return
				}
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// fail ends the waiting of all threads, since one of them failed.
func (m *team) fail(error) { m.failAll(errOtherThread) }

func (m *team) failAll(err error) {
	for _, l := range m.links {
		l.fail(err)
	}
}
