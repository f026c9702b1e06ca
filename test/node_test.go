//go:build linux

package test

import (
	"context"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx"
	"github.com/goucx/goucx/ucp"
)

const allBits = ^ucp.Tag(0)

// node is a context with a worker, in the test or in a second process.
type node struct {
	x *ucp.Context
	w *ucp.Worker

	idle int // passes since something was done
}

func newNode(mode ucp.ThreadMode, closeTimeout time.Duration) (*node, error) {
	x, err := goucx.Open(ucp.Config{CloseTimeout: closeTimeout})
	if err != nil {
		return nil, err
	}
	w, err := x.NewWorker(ucp.WorkerConfig{Mode: mode})
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return &node{x: x, w: w}, nil
}

// open is newNode for a test, which closes it if the test does not.
func open(t testing.TB, mode ucp.ThreadMode) *node { return openBounded(t, mode, patience) }

func openBounded(t testing.TB, mode ucp.ThreadMode, closeTimeout time.Duration) *node {
	t.Helper()
	n, err := newNode(mode, closeTimeout)
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.x.Close() })
	return n
}

// address is the worker's, fit for a line.
func (n *node) address() string { return hex.EncodeToString(n.w.Address()) }

func (n *node) connect(address string) (ucp.Endpoint, error) {
	a, err := hex.DecodeString(address)
	if err != nil {
		return ucp.Endpoint{}, err
	}
	return n.w.NewEndpoint(a, ucp.EndpointConfig{})
}

// dial is connect for a test.
func (n *node) dial(t testing.TB, address string) ucp.Endpoint {
	t.Helper()
	e, err := n.connect(address)
	require.NoError(t, err)
	return e
}

func (n *node) unpack(e ucp.Endpoint, key string) (*ucp.RemoteKey, error) {
	k, err := hex.DecodeString(key)
	if err != nil {
		return nil, err
	}
	return e.UnpackKey(k)
}

// nap sleeps until the worker has something to do, a moment at most, where it had
// nothing for a while: what waits for long must not take the processor from
// what is tested.
func (n *node) nap(did int) {
	n.idle++
	if did != 0 {
		n.idle = 0
	}
	if n.idle < 2000 || n.w.Arm() != nil {
		return
	}
	fd, err := n.w.EventFD()
	check(err)
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, _ = unix.Poll(fds, 5) // interrupted: as good as woken
}

// bounded is a context that ends what should have ended long before.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("the test's patience ended"))
	t.Cleanup(cancel)
	return ctx
}
