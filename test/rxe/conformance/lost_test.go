//go:build linux && cgo && ibverbs

package conformance

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/uct"
)

// What TestLost takes away: a device that reaches the one under test, by a command of the shell. Without them
// the test is skipped.
const (
	spareVar  = "GOUCX_IBV_SPARE"
	removeVar = "GOUCX_IBV_REMOVE"
	// oneSideVar is set where only the sends to that device end: Soft-RoCE of Linux 6.1 keeps those of a reliable
	// connection on a device whose own link is down, also after it is up again.
	oneSideVar = "GOUCX_IBV_ONE_SIDE"
)

// lostSide is a worker on a device of its own with requests in flight.
type lostSide struct {
	*ucp.Worker
	c           *ucp.Context
	ep          ucp.Endpoint
	sends       []ucp.Request
	recvs       []ucp.RecvRequest
	bufs        [][]byte
	ended       int   // requests that have ended well
	err         error // the first error of a send
	sendsFailed int
}

// lostDepth is the number of sends, and of receives, that are in flight on each side.
const lostDepth = 8

// servedFor is how long sends must end well until a device counts as one that goes on for those that have it open.
const servedFor = 8 * time.Second

// newLostSide opens a worker on a port.
func newLostSide(t *testing.T, transport, port string) *lostSide {
	t.Helper()
	component, _ := over(t, transport)
	providers := []uct.Component{component}
	s, _, err := config.Load(config.Options{Env: append(slices.Clone(impatient), "UCX_NET_DEVICES="+port), Dirs: []string{}}, ucp.Tables(providers)...)
	require.NoError(t, err)
	c, err := ucp.Open(ucp.Config{Settings: s, Providers: providers, CloseTimeout: 5 * time.Second})
	require.NoError(t, err)
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	d := &lostSide{Worker: w, c: c}
	for range 2 * lostDepth {
		d.bufs = append(d.bufs, make([]byte, 4096))
	}
	return d
}

// post fills the queues, while sends end well.
func (d *lostSide) post() {
	for i := len(d.sends); i < lostDepth && d.err == nil; i++ {
		d.sends = append(d.sends, d.ep.TagSend(d.bufs[i], 1))
	}
	for i := len(d.recvs); i < lostDepth; i++ {
		d.recvs = append(d.recvs, d.TagRecv(d.bufs[lostDepth+i], 1, ^ucp.Tag(0)))
	}
}

// reap takes the requests that have ended.
func (d *lostSide) reap(t *testing.T) {
	d.Progress()
	d.sends = slices.DeleteFunc(d.sends, func(r ucp.Request) bool {
		if !r.Done() {
			return false
		}
		switch err := r.Wait(t.Context()); {
		case err == nil:
			d.ended++
		case d.err == nil:
			d.err = err
			fallthrough
		default:
			d.sendsFailed++
		}
		return true
	})
	d.recvs = slices.DeleteFunc(d.recvs, func(r ucp.RecvRequest) bool {
		if !r.Done() {
			return false
		}
		if _, err := r.Wait(t.Context()); err != nil {
			assert.ErrorIs(t, err, ucp.ErrPeerFailed, "a receive whose message has begun to arrive")
		}
		return true
	})
}

// TestLost: a device goes away while messages go both ways over it. On both sides every send ends, those in flight with the
// reason, and the workers close. Where the kernel lets the programs that use a device go on with it, as it does for Soft-RoCE,
// nothing fails until they close it; then it is gone.
func TestLost(t *testing.T) {
	remove := os.Getenv(removeVar)
	if remove == "" {
		t.Skip("no RDMA device that can be taken away: " + removeVar + " is not set")
	}
	_, port := over(t, "rc")
	for _, transport := range []string{"rc", "ud"} {
		t.Run(transport, func(t *testing.T) { lost(t, transport, port, os.Getenv(spareVar)+":1", remove) })
	}
}

func lost(t *testing.T, transport, port, spare, remove string) {
	a, b := newLostSide(t, transport, port), newLostSide(t, transport, spare)
	var err error
	a.ep, err = a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	b.ep, err = b.NewEndpoint(a.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	sides := []*lostSide{a, b}
	pass := func() {
		for _, d := range sides {
			d.post()
			d.reap(t)
		}
	}
	for start := time.Now(); min(a.ended, b.ended) < 100; {
		require.NoError(t, a.err)
		require.NoError(t, b.err)
		require.Less(t, time.Since(start), time.Minute, "the traffic before")
		pass()
	}

	before := a.ended + b.ended
	command := exec.Command("sh", "-ec", remove)
	require.NoError(t, command.Start())
	removed := make(chan error, 1)
	go func() { removed <- command.Wait() }()
	began := time.Now()
	for a.err == nil || b.err == nil && os.Getenv(oneSideVar) == "" {
		pass()
		if a.err == nil && b.err == nil && time.Since(began) > servedFor && a.ended+b.ended > before {
			break // it serves those that have it open
		}
		if time.Since(began) < servedFor/2 {
			before = a.ended + b.ended
		}
		require.Less(t, time.Since(began), time.Minute, "sends of %d and %d end, errors %v and %v", a.ended, b.ended, a.err, b.err)
	}
	t.Logf("%s: after %v: %d and %d sends had ended, errors: %v; %v", remove, time.Since(began), a.ended, b.ended, a.err, b.err)
	if a.err != nil {
		if os.Getenv(oneSideVar) != "" {
			sides[1].sends = nil
		}
		for len(a.sends)+len(b.sends) > 0 {
			for _, d := range sides {
				d.reap(t)
			}
			require.Less(t, time.Since(began), 2*time.Minute, "%d and %d sends in flight", len(a.sends), len(b.sends))
		}
		assert.ErrorIs(t, a.err, ucp.ErrPeerFailed)
		if b.err != nil {
			assert.ErrorIs(t, b.err, ucp.ErrPeerFailed)
		}
	}
	for _, d := range sides {
		for _, r := range d.recvs {
			r.Cancel()
		}
		if err := d.c.Close(); err != nil {
			t.Logf("close: %v", err)
		}
	}
	select {
	case err := <-removed:
		assert.NoError(t, err, remove)
	case <-time.After(30 * time.Second):
		t.Errorf("%s has not ended 30 s after the device was closed", remove)
	}
}
