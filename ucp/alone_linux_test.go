package ucp_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

// Who sleeps while nothing is under way learns of a peer's death, too, where the
// transport has to ask for it: in a wait, and at the worker's descriptor.
func TestSleepersAskForLife(t *testing.T) {
	for _, s := range []string{"UCX_TLS=rc", "UCX_SOFT_ADDR=127.0.0.1", "UCX_RC_KEEPALIVE_INTERVAL=100ms", "UCX_RC_TIMEOUT=500ms", "UCX_RC_RETRY_COUNT=3"} {
		k, v, _ := strings.Cut(s, "=")
		t.Setenv(k, v)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := startLender(t)
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // its peer is dead
	ended := make(chan error, 2)
	var killed sync.WaitGroup
	killed.Add(1)
	for _, sleep := range []func(w *ucp.Worker, r ucp.RecvRequest) error{
		func(_ *ucp.Worker, r ucp.RecvRequest) error {
			_, err := r.Wait(ctx)
			return err
		},
		func(w *ucp.Worker, r ucp.RecvRequest) error {
			fd, err := w.EventFD()
			if err != nil {
				return err
			}
			for !r.Done() && ctx.Err() == nil {
				for w.Progress() > 0 {
				}
				if err := w.Arm(); errors.Is(err, ucp.ErrBusy) {
					continue
				}
				if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000); err != nil && !errors.Is(err, unix.EINTR) {
					return err
				}
			}
			return r.Err()
		},
	} {
		w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
		require.NoError(t, err)
		e, err := w.NewEndpoint(l.address, ucp.EndpointConfig{})
		require.NoError(t, err)
		require.NoError(t, e.TagSendUint64(1, 1).Wait(ctx))
		require.NoError(t, e.Flush().Wait(ctx))
		r := w.TagRecv(make([]byte, 8), 9, exact).Tie(e)
		go func() {
			killed.Wait()
			ended <- sleep(w, r)
		}()
	}
	require.NoError(t, l.cmd.Process.Kill())
	killed.Done()
	for range cap(ended) {
		require.ErrorIs(t, <-ended, ucp.ErrPeerFailed)
	}
}
