package ucptest

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Case is one property of ucp.
type Case struct {
	Name string
	Run  func(t *testing.T, p *Pair)
}

// Cases lists all conformance cases.
func Cases() []Case {
	return slices.Concat(tagCases, tagBulkCases, rndvCases, tagSyncCases, tagProbeCases, tagCancelCases, waitCases, waitListCases, featureCases, tagOracleCases, flushCases, closeCases, closedCases, exitCases, rmaCases, amoCases, keyCases, bufferCases, amCases, amRndvCases, amMoreCases, orderCases, moreCases, connectCases, unattendedCases, failingCases, onFailureCases, wakeupCases, wakeupPairCases, threadCases)
}

// Factory is what the cases run over.
type Factory struct {
	// Column of matrix.txt.
	Column string
	// Name of a factory that shares its column; "": that of the column.
	Name string
	// Providers of the contexts.
	Providers []uct.Component
	// Env are settings, "UCX_NAME=value".
	Env []string
	// Alone: the transports reach only a worker itself.
	Alone bool
	// Reads: a device reads long messages out of their senders' memory. A send or a
	// receive that has come so far ends with that, not with its cancel.
	Reads bool
	// Takes: a worker that is not driven is connected to nevertheless, and what has
	// come is taken and acknowledged.
	Takes bool
	// Lossy: packets are lost, so a gigabyte takes long, and what was sent may come late.
	Lossy bool
	// FewAtomics: those of the device alone, 64-bit add and compare-and-swap.
	FewAtomics bool
	// Sharing is the policy of the Threads through which every worker sends; nil: it sends itself.
	Sharing *sharing.Policy
	// Modes are those to run in; nil: one goroutine, and two.
	Modes []ucp.ThreadMode
	// Cases are those to run; nil: all.
	Cases []Case
}

var modeNames = map[ucp.ThreadMode]string{ucp.ThreadSingle: "one goroutine", ucp.ThreadMulti: "two goroutines"}

// open opens a context; c has neither providers nor settings.
func (f *Factory) open(c ucp.Config, env ...string) (*ucp.Context, error) {
	o := config.Options{Env: slices.Concat(f.Env, env), Dirs: []string{}}
	var err error
	if c.Settings, _, err = config.Load(o, ucp.Tables(f.Providers)...); err != nil {
		return nil, err
	}
	c.Providers = f.Providers
	return ucp.Open(c)
}

// Run runs every case, and fails where a numbered one does otherwise than
// matrix.txt says.
func Run(t *testing.T, f Factory) {
	m, err := parseMatrix(matrixText)
	require.NoError(t, err, "matrix.txt")
	modes := f.Modes
	if modes == nil {
		modes = []ucp.ThreadMode{ucp.ThreadSingle, ucp.ThreadMulti}
	}
	cases := f.Cases
	if cases == nil {
		cases = Cases()
	}
	for _, mode := range modes {
		t.Run(modeNames[mode], func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.Name, func(t *testing.T) {
					defer m.compare(t, f.Column, c.Name)
					c.Run(t, NewPair(t, f, mode))
				})
			}
		})
	}
}

const (
	// exact is the mask of a receive that takes one tag.
	exact = ^ucp.Tag(0)
	// patience bounds every wait of a case.
	patience = 60 * time.Second
)

// Pair is two workers with an endpoint each to the other. Over a transport that
// reaches only its own worker both are the same.
type Pair struct {
	T        *testing.T
	Factory  Factory
	Context  *ucp.Context
	A, B     *ucp.Worker
	AB, BA   ucp.Endpoint
	mode     ucp.ThreadMode
	workers  []*ucp.Worker
	threads  map[*ucp.Worker]*ucp.Thread // senders of the workers, with Factory.Sharing
	deadline context.Context
}

// NewPair opens a context. With ThreadMulti every worker is
// driven by a goroutine of its own.
func NewPair(t *testing.T, f Factory, mode ucp.ThreadMode) *Pair {
	t.Helper()
	c, err := f.open(ucp.Config{CloseTimeout: 5 * time.Second})
	require.NoError(t, err)
	deadline, cancel := context.WithTimeout(context.Background(), patience)
	p := &Pair{T: t, Factory: f, Context: c, mode: mode, deadline: deadline, threads: make(map[*ucp.Worker]*ucp.Thread)}
	t.Cleanup(func() {
		defer cancel()
		require.NoError(t, c.Close())
	})
	p.A = p.NewWorker()
	p.B = p.A
	if !p.Alone() {
		p.B = p.NewWorker()
	}
	p.AB, p.BA = p.Connect(p.A, p.B), p.Connect(p.B, p.A)
	return p
}

// Alone reports whether the transport reaches only its own worker.
func (p *Pair) Alone() bool {
	return p.Factory.Alone
}

// NewWorker makes a further worker, driven like the others.
func (p *Pair) NewWorker() *ucp.Worker {
	p.T.Helper()
	return p.newWorker(ucp.WorkerConfig{Mode: p.mode})
}

func (p *Pair) newWorker(c ucp.WorkerConfig) *ucp.Worker {
	p.T.Helper()
	return p.workerOf(p.Context, c)
}

// workerOf makes a worker of another context, driven like the others.
func (p *Pair) workerOf(x *ucp.Context, c ucp.WorkerConfig) *ucp.Worker {
	p.T.Helper()
	if p.Factory.Sharing != nil {
		c.Sharing = *p.Factory.Sharing
	}
	w, err := x.NewWorker(c)
	require.NoError(p.T, err)
	p.workers = append(p.workers, w)
	if p.Factory.Sharing != nil {
		p.threads[w], err = w.NewThread()
		require.NoError(p.T, err)
	}
	if p.mode == ucp.ThreadMulti {
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			defer close(done)
			_ = w.Run(ctx)
		}()
		p.T.Cleanup(func() { cancel(); <-done })
	}
	return w
}

// Connect makes an endpoint of from to to, for the sender of from.
func (p *Pair) Connect(from, to *ucp.Worker) ucp.Endpoint {
	p.T.Helper()
	e := p.connectWorker(from, to)
	if t := p.threads[from]; t != nil {
		return e.On(t)
	}
	return e
}

// connectWorker makes an endpoint of from to to.
func (p *Pair) connectWorker(from, to *ucp.Worker) ucp.Endpoint {
	p.T.Helper()
	e, err := from.NewEndpoint(to.Address(), ucp.EndpointConfig{})
	require.NoError(p.T, err)
	return e
}

// flushOf flushes what the sender of w has posted.
func (p *Pair) flushOf(w *ucp.Worker) ucp.Request {
	if t := p.threads[w]; t != nil {
		return t.Flush()
	}
	return w.Flush()
}

// fenceOf fences what the sender of w has posted.
func (p *Pair) fenceOf(w *ucp.Worker) {
	if t := p.threads[w]; t != nil {
		t.Fence()
		return
	}
	w.Fence()
}

// progressOf drives w and its sender.
func (p *Pair) progressOf(w *ucp.Worker) (n int) {
	if t := p.threads[w]; t != nil {
		n = t.Progress()
	}
	return n + w.Progress()
}

// Progress drives all workers and senders that no other goroutine drives.
func (p *Pair) Progress() {
	if p.mode == ucp.ThreadMulti {
		for _, t := range p.threads {
			t.Progress()
		}
		runtime.Gosched()
		return
	}
	for _, w := range p.workers {
		p.progressOf(w)
	}
}

// Until drives until cond is true.
func (p *Pair) Until(cond func() bool) {
	p.T.Helper()
	for !cond() {
		require.NoError(p.T, p.deadline.Err(), "waited too long")
		p.Progress()
	}
}

// Close closes e, an endpoint of worker w, while the other workers are driven:
// what it flushes may need their help.
func (p *Pair) Close(w *ucp.Worker, e ucp.Endpoint) error {
	if p.mode == ucp.ThreadMulti {
		return e.Close()
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, o := range p.workers {
				if o != w {
					p.progressOf(o)
				}
			}
			runtime.Gosched()
		}
	}()
	defer func() { close(stop); <-stopped }()
	return e.Close()
}

// driveUntil waits for all, whose goroutines use other workers than B, and drives
// B where no other goroutine does.
func (p *Pair) driveUntil(all *sync.WaitGroup) {
	var done atomic.Bool
	go func() {
		all.Wait()
		done.Store(true)
	}()
	for !done.Load() {
		p.driveB()
	}
}

// driveB drives B, or lets who does; A is another goroutine's.
func (p *Pair) driveB() {
	if p.mode == ucp.ThreadMulti || p.A == p.B {
		runtime.Gosched()
		return
	}
	if p.progressOf(p.B) == 0 {
		runtime.Gosched()
	}
}

// canceled wants r, which was canceled, to have ended.
func (p *Pair) canceled(r interface{ Done() bool }) {
	p.T.Helper()
	if p.Factory.Reads {
		p.Until(r.Done)
	}
	require.True(p.T, r.Done(), "cancel takes the buffer back at once")
}

// Settle drives long enough for what was sent to arrive.
func (p *Pair) Settle() {
	if p.mode == ucp.ThreadMulti {
		p.Progress()
		time.Sleep(3 * time.Millisecond) // 300 short ones take far longer
		p.Progress()
		return
	}
	for range 300 {
		p.Progress()
	}
	for late := ucs.Now().Add(20 * time.Millisecond); p.Factory.Lossy && ucs.Now() < late; {
		p.Progress()
	}
}

// Wait waits for r and gives its error.
func (p *Pair) Wait(r ucp.Request) error {
	p.T.Helper()
	p.Until(r.Done)
	return r.Wait(p.deadline)
}

// Recv waits for a receive and gives its result.
func (p *Pair) Recv(r ucp.RecvRequest) (ucp.Message, error) {
	p.T.Helper()
	p.Until(r.Done)
	return r.Wait(p.deadline)
}

// MustRecv is Recv of a message that must come.
func (p *Pair) MustRecv(r ucp.RecvRequest) ucp.Message {
	p.T.Helper()
	m, err := p.Recv(r)
	require.NoError(p.T, err)
	return m
}

// scaled is n, or less of it where the race detector or -short asks for haste.
func scaled(n int) int {
	if race.Enabled || testing.Short() {
		return max(n/10, 1)
	}
	return n
}

// pattern gives n bytes that depend on seed.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8)*31 ^ byte(i>>16)*17 ^ seed
	}
	return b
}
