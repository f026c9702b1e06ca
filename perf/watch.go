package perf

import (
	"errors"
	"time"
)

// errOtherThread ends the threads when another one has failed.
var errOtherThread = errors.New("another thread failed")

// watchPeriod is how often a watcher checks the other side.
const watchPeriod = 50 * time.Millisecond

// watch starts a goroutine that checks for the other side's failure while kernels cannot: they
// block, or there are several and the group supports only one goroutine. Until stop returns, no
// other goroutine may use the group.
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
			case <-m.interrupt:
				m.failAll(ErrInterrupted)
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

// fail ends the waits of all threads, because one of them failed.
func (m *team) fail(error) { m.failAll(errOtherThread) }

func (m *team) failAll(err error) {
	for _, l := range m.links {
		l.fail(err)
	}
}
