package ucp

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/uct"
)

// lookedAt is an inactive iface that has a message when it is progressed, which each
// look around does once.
type lookedAt struct {
	uct.Iface
	handler uct.Handler
	counts  int // what Progress returns
}

func (f lookedAt) Progress(int) int {
	f.handler.HandleAM([]byte{7}, []uct.Desc{{Len: 1, ID: wire.Eager, Header: 1}})
	return f.counts
}

// A wait ends with what the last pass before a sleep took in, also where that pass
// was a look at the inactive ifaces, or counts as idle.
func TestLookAroundBeforeSleep(t *testing.T) {
	for counts := range 2 {
		c, err := Open(Config{Providers: []uct.Component{self.Component()}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		w, err := c.NewWorker(WorkerConfig{Mode: ThreadSingle, Spin: 1})
		require.NoError(t, err)
		require.NotNil(t, w.t.polling.sleeper.set, "Linux has event descriptors")
		wi := w.t.ifaces[0]
		wi.iface = lookedAt{wi.iface, wi, counts}
		w.t.polling.passes, w.t.polling.dueAfter, w.t.polling.slow.passes = 0, armPasses/2, w.t.polling.slow.everyPasses // in those before the sleep
		buf := make([]byte, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		m, err := w.TagRecv(buf, 1, ^Tag(0)).Wait(ctx)
		require.NoError(t, err)
		require.NoError(t, ctx.Err(), "the end of the context woke it")
		cancel()
		require.Equal(t, Message{Tag: 1, Len: 1}, m)
		require.Equal(t, []byte{7}, buf)
	}
}
