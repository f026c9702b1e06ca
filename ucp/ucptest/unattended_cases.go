package ucptest

import (
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// Posts of a worker of ThreadMulti that no goroutine progresses: operations that wait
// for a connection are sent once it is established.
var unattendedCases = []Case{
	{"unattended: messages posted before the connection arrive", unattendedPosts},
	{"unattended: more messages than fit arrive in order", unattendedMany},
	{"unattended: order behind more answers than a lane awaits", unattendedStalled},
	{"unattended: no callback of the program runs", unattendedQuiet},
	{"unattended: beside goroutines that post, progress and close", unattendedBusy},
}

// unattended makes a worker of ThreadMulti that no goroutine drives, and an endpoint to
// a peer that the case drives. Over a transport that reaches only its own worker both
// are the same.
func unattended(p *Pair) (w, peer *ucp.Worker, e ucp.Endpoint) {
	p.T.Helper()
	var ws [2]*ucp.Worker
	for i := range ws {
		var err error
		ws[i], err = p.Context.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadMulti})
		require.NoError(p.T, err)
	}
	if p.Alone() {
		ws[1] = ws[0]
	}
	return ws[0], ws[1], p.Connect(ws[0], ws[1])
}

// resumes reports whether the transport resumes operations that found no room after
// the connection was established.
func (p *Pair) resumes() bool {
	return p.Factory.Takes && !strings.Contains(p.Factory.Column, "shm")
}

func unattendedPosts(t *testing.T, p *Pair) {
	_, peer, e := unattended(p)
	sizes := []int{5, 0, 8, 2000, 1}
	if p.resumes() {
		sizes = append(sizes, 60_000, 3)
	}
	var sent []ucp.Request
	for i, n := range sizes {
		sent = append(sent, e.TagSend(pattern(n, byte(i)), 7))
	}
	for i, n := range sizes {
		buf := make([]byte, 64<<10)
		m, err := peer.TagRecv(buf, 7, exact).Wait(p.deadline)
		require.NoError(t, err, "message %d", i)
		require.Equal(t, pattern(n, byte(i)), buf[:m.Len], "message %d", i)
	}
	for _, r := range sent {
		require.NoError(t, r.Wait(p.deadline))
	}
}

func unattendedMany(t *testing.T, p *Pair) {
	n := 10
	if p.resumes() {
		n = scaled(2000)
	}
	_, peer, e := unattended(p)
	for i := range n {
		e.TagSend(binary.LittleEndian.AppendUint64(make([]byte, 92), uint64(i)), 7)
	}
	buf := make([]byte, 100)
	for i := range n {
		_, err := peer.TagRecv(buf, 7, exact).Wait(p.deadline)
		require.NoError(t, err, "message %d", i)
		require.EqualValues(t, i, binary.LittleEndian.Uint64(buf[92:]))
	}
}

// unattendedStalled: the async goroutine resumes a fetch that stalls the lane, and its
// turn ends while other operations still wait. The next Progress receives the replies that
// resume the lane. The messages arrive in the order of posting.
func unattendedStalled(t *testing.T, p *Pair) {
	const rounds, fetches = 4, 40 // more than a lane awaits
	each := scaled(4000)
	w, peer, e := unattended(p)
	m, err := p.Context.Register(make([]byte, 64), ucp.MemConfig{})
	require.NoError(t, err)
	k, err := e.UnpackKey(m.Key())
	require.NoError(t, err)
	a, err := ucp.AtomicAt[uint64](k, 0)
	if p.Factory.FewAtomics && err != nil {
		require.ErrorIs(t, err, ucp.ErrUnsupported)
		return
	}
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(p.deadline)
	var all sync.WaitGroup
	defer func() { cancel(); all.Wait() }()
	all.Go(func() { _ = peer.Run(ctx) })
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(300 * time.Microsecond): // the async goroutine has its turns
				w.Progress()
			}
		}
	})
	buf := make([]byte, 8)
	for range rounds {
		var fs []ucp.Fetch[uint64]
		for i := range each {
			if i < fetches {
				fs = append(fs, a.FetchXor(1))
			}
			e.TagSendUint64(uint64(i), 7)
		}
		for i := range each {
			_, err := peer.TagRecv(buf, 7, exact).Wait(p.deadline)
			require.NoError(t, err, "message %d", i)
			require.EqualValues(t, i, binary.LittleEndian.Uint64(buf))
		}
		for i, f := range fs {
			v, err := f.Wait(p.deadline)
			require.NoError(t, err)
			require.EqualValues(t, i%2, v)
		}
	}
}

// unattendedQuiet: callbacks and received messages wait for Progress of the program.
func unattendedQuiet(t *testing.T, p *Pair) {
	w, peer, e := unattended(p)
	var ran atomic.Int32
	require.NoError(t, w.HandleAM(1, func(*ucp.AM) { ran.Add(1) }))
	r := e.TagSend(pattern(40, 1), 7)
	due := int32(1)
	if r.Notify(func(ucp.Completion) { ran.Add(1) }, 0) {
		due++
	}
	back := p.Connect(peer, w)
	back.AMSend(1, nil, []byte("comes in"))
	if p.Factory.Takes {
		require.NoError(t, back.Flush().Wait(p.deadline), "it has been acknowledged")
	}
	buf := make([]byte, 40)
	_, err := peer.TagRecv(buf, 7, exact).Wait(p.deadline)
	require.NoError(t, err)
	if !p.Alone() {
		require.Zero(t, ran.Load(), "no goroutine progresses the sender")
	}
	for ran.Load() < due {
		require.NoError(t, p.deadline.Err())
		w.Progress()
		peer.Progress()
	}
}

// unattendedBusy: several goroutines make endpoints, post and close, another one
// progresses now and then. Each endpoint's messages arrive in order.
func unattendedBusy(t *testing.T, p *Pair) {
	const posters, lanes = 3, 4
	each := scaled(50)
	w, peer, _ := unattended(p)
	var all sync.WaitGroup
	stop := make(chan struct{})
	defer func() { close(stop); all.Wait() }()
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(700 * time.Microsecond): // the async goroutine has its turns
				w.Progress()
			}
		}
	})
	for k := range posters {
		all.Go(func() {
			for l := range lanes {
				e, err := w.NewEndpoint(peer.Address(), ucp.EndpointConfig{})
				if !assert.NoError(t, err) {
					return
				}
				var last ucp.Request
				for i := range each {
					last = e.TagSendUint64(uint64(i), ucp.Tag(k*lanes+l))
				}
				if l%2 == 0 {
					assert.NoError(t, last.Wait(p.deadline))
					assert.NoError(t, e.Close())
				}
			}
		})
	}
	buf := make([]byte, 8)
	for l := range lanes {
		for i := range each {
			for k := range posters {
				_, err := peer.TagRecv(buf, ucp.Tag(k*lanes+l), exact).Wait(p.deadline)
				require.NoError(t, err, "message %d, poster %d, endpoint %d", i, k, l)
				require.EqualValues(t, i, binary.LittleEndian.Uint64(buf), "poster %d, endpoint %d", k, l)
			}
		}
	}
}
