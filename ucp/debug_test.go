//go:build ucxdebug

package ucp_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// With the build tag ucxdebug a Thread that two goroutines use at once panics.
func TestThreadOfTwoGoroutines(t *testing.T) {
	w, _, ep := newPair(t, "shm", ucp.ThreadMulti)
	th, err := w.NewThread()
	require.NoError(t, err)
	e := ep.On(th)
	require.NoError(t, e.TagSendUint64(1, 1).Wait(t.Context()))
	var found atomic.Value
	use := func() {
		defer func() {
			if r := recover(); r != nil {
				found.Store(r)
			}
		}()
		for end := time.Now().Add(10 * time.Second); found.Load() == nil && time.Now().Before(end); {
			e.TagSendUint64(1, 1)
			th.Progress()
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); use() }()
	use()
	<-done
	require.Contains(t, found.Load(), "two goroutines use a Thread")
}
