package ucp_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs/stats/live"
)

// answerTime is how long a loaded machine may take to answer.
const answerTime = time.Minute

// shown opens a context that shows itself and gives its page's socket.
func shown(t *testing.T, env ...string) (*ucp.Context, string) {
	t.Helper()
	dir := t.TempDir()
	c, err := ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t, append(env, "UCX_STATS_DEST=unix:"+dir)...)})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left, "nothing stays behind")
	})
	found, err := live.List(dir)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, os.Getpid(), found[0].PID)
	return c, found[0].Path
}

// read returns a page to which all workers responded, while this goroutine progresses ws. On a loaded
// machine a worker may be too late for the first ones.
func read(t *testing.T, path string, ws ...*ucp.Worker) *live.Page {
	t.Helper()
	type answer struct {
		p   *live.Page
		err error
	}
	answers := make(chan answer, 1)
	late := func(l live.Worker) bool { return !l.Responsive }
	go func() {
		p, err := live.Read(path, answerTime)
		for began := time.Now(); err == nil && slices.ContainsFunc(p.Workers, late) && time.Since(began) < answerTime; {
			p, err = live.Read(path, answerTime)
		}
		answers <- answer{p, err}
	}()
	for {
		select {
		case a := <-answers:
			require.NoError(t, a.err)
			require.Len(t, a.p.Workers, len(ws))
			return a.p
		default:
			for _, w := range ws {
				w.Progress()
			}
		}
	}
}

// readUnexpected reads a page as read does, until worker b has received n messages that no receive
// of b matches.
func readUnexpected(t *testing.T, path string, n int, a, b *ucp.Worker) *live.Page {
	t.Helper()
	p := read(t, path, a, b)
	for began := time.Now(); called(t, p, b).Summary.Unexpected < n && time.Since(began) < answerTime; {
		p = read(t, path, a, b)
	}
	return p
}

// called finds a worker of a page by the name that endpoints to it show.
func called(t *testing.T, p *live.Page, w *ucp.Worker) live.Worker {
	t.Helper()
	for _, l := range p.Workers {
		if strings.HasPrefix(w.Address().String(), "worker "+l.Name+" ") {
			return l
		}
	}
	require.Fail(t, "the page lacks a worker", "%+v", p)
	return live.Worker{}
}

func worker(t *testing.T, c *ucp.Context, mode ucp.ThreadMode) *ucp.Worker {
	t.Helper()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: mode})
	require.NoError(t, err)
	return w
}

// One worker waits for messages, sends what nobody receives and has lost a peer.
// It is all there, while it is progressed and when it hangs.
func TestLivePage(t *testing.T) {
	c, path := shown(t, "UCX_TLS=shm,self")
	a, b, lost := worker(t, c, ucp.ThreadSingle), worker(t, c, ucp.ThreadSerialized), worker(t, c, ucp.ThreadSingle)
	ep, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	gone, err := a.NewEndpoint(lost.Address(), ucp.EndpointConfig{Eager: true})
	require.NoError(t, err)
	_, err = a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	require.NoError(t, ep.TagSend([]byte("unexpected"), 7).Wait(t.Context()))
	for range 3 {
		a.TagRecv(make([]byte, 100), 0xbee, ^ucp.Tag(0))
	}
	a.TagRecv(make([]byte, 8), 0x10, 0xff).Tie(gone)
	first := called(t, read(t, path, a, b, lost), a)
	assert.True(t, first.Responsive)
	assert.False(t, first.Armed)
	assert.Equal(t, "single", first.Mode)
	assert.Equal(t, 3, first.Summary.Endpoints)
	assert.Equal(t, 2, first.Summary.Connected)
	require.Len(t, first.Summary.Requests, 2)

	require.NoError(t, lost.Close())
	for gone.Info().Err == nil {
		a.Progress()
	}
	p := readUnexpected(t, path, 1, a, b)
	assert.Contains(t, p.Settings, live.Setting{Name: "UCX_TLS", Value: "shm,self", Origin: "environment UCX_TLS"})
	assert.Equal(t, os.Args, p.Command)
	la := called(t, p, a)
	s := la.Summary
	assert.Equal(t, []int{3, 1, 1, 1}, []int{s.Endpoints, s.Connected, s.Failed, s.Unread}, "the tied receive has ended")
	require.Len(t, s.Peers, 2)
	assert.Equal(t, "failed", s.Peers[0].State)
	assert.NotEmpty(t, s.Peers[0].Error)
	assert.Equal(t, live.Endpoint{Peer: called(t, p, b).Name, State: "connected", Lanes: []live.Lane{{Name: "shm/memory"}}}, s.Peers[1])
	require.Len(t, s.Requests, 1)
	r := s.Requests[0]
	assert.Positive(t, r.OldestSeconds, "it was seen before")
	r.OldestSeconds = 0
	assert.Equal(t, live.Requests{Op: "tag receive", State: "posted", Count: 3, Bytes: 300, Tag: "0xbee"}, r)
	lb := called(t, p, b)
	assert.Equal(t, 1, lb.Summary.Unexpected)
	assert.Positive(t, lb.Summary.AllocatedBytes)
	assert.Equal(t, "serialized", lb.Mode)

	a.TagRecv(nil, 1, 0) // after the summary, and nobody progresses from now on
	p, err = live.Read(path, answerTime)
	require.NoError(t, err)
	hung := called(t, p, a)
	assert.False(t, hung.Responsive)
	assert.Positive(t, hung.AgeSeconds)
	require.Len(t, hung.Summary.Requests, 1)
	oldest := &hung.Summary.Requests[0].OldestSeconds
	assert.GreaterOrEqual(t, *oldest, s.Requests[0].OldestSeconds)
	*oldest = s.Requests[0].OldestSeconds // it may have published anew since s was read
	assert.Equal(t, s, hung.Summary, "what it published last")
	assert.Equal(t, a.Stats().Snapshot()[0].Value, hung.Counters[a.Stats().Snapshot()[0].Name])
}

// Each state that a send, a receive and a flush may hang in has its name.
func TestLiveStates(t *testing.T) {
	c, path := shown(t, "UCX_TLS=shm,self", "UCX_RNDV_OUTSTANDING=2")
	a, b := worker(t, c, ucp.ThreadSingle), worker(t, c, ucp.ThreadSingle)
	ep, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	sync := ep.TagSendSync(make([]byte, 10), 1)
	ep.TagSendWith(make([]byte, 100), 2, ucp.Opts{Flags: ucp.ForceRendezvous})
	ep.TagSendWith(make([]byte, 1000), 3, ucp.Opts{Flags: ucp.ForceRendezvous})
	ep.AMSendWith(4, nil, make([]byte, 7), ucp.Opts{Flags: ucp.ForceRendezvous})
	ep.Flush()
	p := readUnexpected(t, path, 2, a, b)
	states := map[string]live.Requests{}
	for _, r := range called(t, p, a).Summary.Requests {
		states[r.Op+" "+r.State] = r
	}
	assert.Equal(t, uint64(10), states["tag sync send not matched"].Bytes)
	assert.Equal(t, "0x1", states["tag sync send not matched"].Tag)
	assert.Equal(t, called(t, p, b).Name, states["tag sync send not matched"].Peer)
	assert.Equal(t, uint64(100), states["tag send announced"].Bytes)
	assert.Equal(t, uint64(1000), states["tag send held back"].Bytes)
	assert.Equal(t, uint64(7), states["active message held back"].Bytes)
	assert.Empty(t, states["active message held back"].Tag)
	assert.Equal(t, 1, states["flush behind sends"].Count)
	assert.Equal(t, 2, called(t, p, b).Summary.Unexpected)

	got := b.TagRecv(make([]byte, 10), 1, ^ucp.Tag(0))
	fetch := b.TagRecv(make([]byte, 100), 2, ^ucp.Tag(0))
	for !sync.Done() { // a alone progresses: b's own part is done at its call
		a.Progress()
	}
	_, err = got.Wait(t.Context())
	require.NoError(t, err)
	_, err = fetch.Wait(t.Context())
	require.NoError(t, err)
}

// A worker of mode multi is looked into although nobody progresses it, and while
// a goroutine that runs it sleeps.
func TestLiveMulti(t *testing.T) {
	c, path := shown(t)
	w := worker(t, c, ucp.ThreadMulti)
	w.TagRecv(make([]byte, 5), 3, ^ucp.Tag(0))
	p, err := live.Read(path, answerTime)
	require.NoError(t, err)
	l := called(t, p, w)
	assert.False(t, l.Responsive, "nobody progresses it")
	require.Len(t, l.Summary.Requests, 1)
	assert.Equal(t, "0x3", l.Summary.Requests[0].Tag)
	runs(t, path, w, func(l live.Worker) bool { return l.Responsive && l.Armed })
}

// A sleeper of mode single answers: it is woken for it.
func TestLiveAsleep(t *testing.T) {
	c, path := shown(t)
	w := worker(t, c, ucp.ThreadSingle)
	w.TagRecv(make([]byte, 5), 3, ^ucp.Tag(0))
	runs(t, path, w, func(l live.Worker) bool { return l.Responsive && l.Armed })
}

// runs has a goroutine run w until a page shows it so.
func runs(t *testing.T, path string, w *ucp.Worker, so func(live.Worker) bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	}()
	for limit := time.After(answerTime); ; {
		p, err := live.Read(path, answerTime)
		require.NoError(t, err)
		if l := called(t, p, w); so(l) {
			require.Len(t, l.Summary.Requests, 1)
			assert.Equal(t, "tag receive", l.Summary.Requests[0].Op)
			return
		}
		select {
		case <-limit:
			require.Fail(t, "it was never so", "%+v", p)
		default:
		}
	}
}

func TestLiveOff(t *testing.T) {
	assert.Empty(t, ucp.LiveDir(settings(t)))
	assert.Equal(t, live.DefaultDir(), ucp.LiveDir(settings(t, "UCX_STATS_DEST=unix")))
	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t, "UCX_STATS_DEST=unix:"+file)})
	require.ErrorContains(t, err, "open context: offer counters in "+file)
}

// A Thread is listed as one of its worker; one that is not progressed does not respond.
func TestLiveThread(t *testing.T) {
	x, path := shown(t)
	a, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadMulti})
	require.NoError(t, err)
	b, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadMulti})
	require.NoError(t, err)
	ep, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	th, err := a.NewThread()
	require.NoError(t, err)
	require.NoError(t, ep.On(th).TagSendUint64(1, 1).Wait(t.Context()))
	p, err := live.Read(path, answerTime)
	require.NoError(t, err)
	require.Len(t, p.Workers, 3)
	i := slices.IndexFunc(p.Workers, func(w live.Worker) bool { return strings.HasPrefix(w.Mode, "thread of ") })
	require.GreaterOrEqual(t, i, 0)
	assert.False(t, p.Workers[i].Responsive)
	assert.True(t, slices.ContainsFunc(p.Workers, func(w live.Worker) bool { return p.Workers[i].Mode == "thread of "+w.Name }))
}
