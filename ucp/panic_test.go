package ucp_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
)

// TestCloseAfterAPanic: a callback that does not return, because it panicked or ended its
// goroutine, blocks no Close. The other workers of the context are closed.
func TestCloseAfterAPanic(t *testing.T) {
	const timeout = 100 * time.Millisecond
	ends := map[string]func(){"panic": func() { panic("a fault of the program") }, "Goexit": runtime.Goexit}
	for _, transport := range []string{"self", "shm", "rc", "ud"} {
		for how, end := range ends {
			t.Run(transport+" "+how, func(t *testing.T) {
				bothModes(t, func(t *testing.T, mode ucp.ThreadMode) {
					c, err := ucp.Open(ucp.Config{
						Providers: transports.All(), CloseTimeout: timeout,
						Settings: settings(t, "UCX_TLS="+transport, "UCX_SOFT_LINK=inproc"),
					})
					require.NoError(t, err)
					w, err := c.NewWorker(ucp.WorkerConfig{Mode: mode})
					require.NoError(t, err)
					other, err := c.NewWorker(ucp.WorkerConfig{Mode: mode})
					require.NoError(t, err)
					require.NoError(t, w.HandleAM(1, func(*ucp.AM) { end() }))
					e, err := w.NewEndpoint(w.Address(), ucp.EndpointConfig{})
					require.NoError(t, err)
					over := make(chan struct{})
					go func() {
						defer close(over)
						defer func() { _ = recover() }()
						e.AMSend(1, nil, []byte{1})
						for {
							w.Progress()
						}
					}()
					<-over

					want := map[ucp.ThreadMode]error{ucp.ThreadSingle: ucp.ErrInvalid, ucp.ThreadMulti: ucp.ErrTimeout}[mode]
					for name, closes := range map[string]func() error{"worker": w.Close, "context": c.Close} {
						began := ucs.Now()
						err = closes()
						require.ErrorIs(t, err, want, name)
						require.ErrorContains(t, err, "panicked")
						require.Less(t, ucs.Now().Sub(began), 20*time.Second, "%s: %v", name, err)
					}
					require.ErrorIs(t, other.Arm(), ucp.ErrClosed)
					require.ErrorIs(t, c.Close(), want, "a second time")
				})
			})
		}
	}
}
