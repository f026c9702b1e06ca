package ucptest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var threadCases = []Case{
	{"34 sixteen goroutines post, wait and cancel", threadTraffic},
	{"46 sixteen goroutines put, get and add", threadMemory},
	{"sixteen goroutines send and answer active messages", threadAM},
	{"goroutines take turns with a serialized worker", threadTurns},
	{"112 abort in callbacks and by another goroutine", threadAbort},
	{"close while sixteen goroutines wait", threadClose},
	{"waiters hand the progress on", threadBaton},
	{"a request that several wait for", threadShared},
	{"several contexts at once", threadContexts},
}

// goroutines is how many use one worker at once.
const goroutines = 16

// crowd runs f on so many goroutines and waits for them.
func crowd(n int, f func(g int)) {
	var wg sync.WaitGroup
	for g := range n {
		wg.Go(func() { f(g) })
	}
	wg.Wait()
}

// threadTraffic: each goroutine has a conversation with itself over the two
// workers; only the waits drive them.
func threadTraffic(t *testing.T, p *Pair) {
	for _, spin := range []time.Duration{0, time.Nanosecond} {
		a, b, ab := alone(p, ucp.ThreadMulti, spin)
		ctx, cancel := context.WithCancel(p.deadline)
		var driver sync.WaitGroup
		if a != b { // a sender waits only where there is no room
			driver.Go(func() { _ = a.Run(ctx) })
		}
		var canceled, received atomic.Int32
		crowd(goroutines, func(g int) {
			r := rand.New(rand.NewPCG(uint64(g), 34))
			for i := range scaled(300) {
				if err := threadRound(p, b, ab, g, i, r, &canceled); err != nil {
					t.Errorf("goroutine %d, round %d: %v", g, i, err)
					return
				}
				received.Add(1)
			}
		})
		cancel()
		driver.Wait()
		require.EqualValues(t, goroutines*scaled(300), received.Load())
		require.Positive(t, canceled.Load())
	}
}

func threadRound(p *Pair, b *ucp.Worker, ab ucp.Endpoint, g, i int, r *rand.Rand, canceled *atomic.Int32) error {
	tag := ucp.Tag(g)<<32 | ucp.Tag(i)
	n := []int{0, 8, 100, 3000, 20_000}[r.IntN(5)]
	out, in := pattern(n, byte(g*7+i)), make([]byte, n)
	if r.IntN(4) == 0 {
		never := b.TagRecv(in, tag|1<<62, exact)
		never.Cancel()
		if _, err := never.Wait(p.deadline); !errors.Is(err, ucp.ErrCanceled) {
			return errors.New("a receive that was canceled ended otherwise")
		}
		canceled.Add(1)
	}
	var rr ucp.RecvRequest
	early := r.IntN(2) == 0
	if early {
		rr = b.TagRecv(in, tag, exact)
	}
	rs := ab.TagSend(out, tag)
	if !early {
		rr = b.TagRecv(in, tag, exact)
	}
	m, err := rr.Wait(p.deadline)
	if err != nil {
		return err
	}
	if m != (ucp.Message{Tag: tag, Len: n}) || string(in) != string(out) {
		return errors.New("another message than was sent")
	}
	return rs.Wait(p.deadline)
}

func threadMemory(t *testing.T, p *Pair) {
	_, b, ab := alone(p, ucp.ThreadMulti, 0)
	running, stop := context.WithCancel(p.deadline)
	var run sync.WaitGroup
	run.Go(func() { _ = b.Run(running) })
	defer run.Wait()
	defer stop()
	const each = 64
	m, err := p.Context.Allocate((goroutines+1)*each, ucp.MemConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	k, err := ab.UnpackKey(m.Key())
	require.NoError(t, err)
	sum, err := ucp.AtomicAt[uint64](k, goroutines*each)
	require.NoError(t, err)
	rounds := scaled(500)
	crowd(goroutines, func(g int) {
		in := make([]byte, each)
		for i := range rounds {
			out := pattern(each, byte(g+i))
			put := k.Put(out, uint64(g*each))
			add := sum.Add(1)
			if err := ucp.WaitAll(p.deadline, []ucp.Request{put, add}, nil); err != nil {
				t.Errorf("put and add: %v", err)
				return
			}
			ab.Fence()
			if err := k.Get(in, uint64(g*each)).Wait(p.deadline); err != nil || string(in) != string(out) {
				t.Errorf("goroutine %d got something else: %v", g, err)
				return
			}
			if i%32 == 0 {
				if err := ab.Flush().Wait(p.deadline); err != nil {
					t.Errorf("flush: %v", err)
				}
			}
			b.Progress()
		}
	})
	v, err := sum.Load().Wait(p.deadline)
	require.NoError(t, err)
	require.EqualValues(t, goroutines*rounds, v)
	require.NoError(t, ab.Flush().Wait(p.deadline))
}

// threadAbort: an endpoint is aborted by a callback of its own requests, and by
// another goroutine while many wait for what they sent on it.
func threadAbort(t *testing.T, p *Pair) {
	a, _, ab := alone(p, ucp.ThreadMulti, 0)
	full := func() (rs []ucp.Request) {
		for len(rs) < goroutines {
			if r := ab.TagSend(make([]byte, 2048), 1); r != (ucp.Request{}) {
				rs = append(rs, r)
			}
		}
		return rs
	}
	rs := full()
	var ended atomic.Int32
	late := make(chan struct{})
	go func() {
		defer close(late)
		ab.Abort(errCause)
	}()
	crowd(goroutines, func(g int) {
		if err := rs[g].Wait(p.deadline); err == nil || errors.Is(err, errCause) {
			ended.Add(1)
		} else {
			t.Errorf("wait: %v", err)
		}
	})
	<-late
	require.EqualValues(t, goroutines, ended.Load())

	ab = p.Connect(a, a)
	if ab.MaxInline() == 0 {
		return // it does not reach its own worker
	}
	var calls atomic.Int32
	cancelled := a.TagRecv(nil, 1<<40, exact)
	require.True(t, cancelled.Notify(func(c ucp.Completion) {
		ab.Abort(errCause)
		calls.Add(1)
	}, 0))
	cancelled.Cancel()
	require.NoError(t, a.WaitUntil(p.deadline, func() bool { return calls.Load() == 1 }))
	require.ErrorIs(t, ab.TagSend(nil, 1).Err(), ucp.ErrClosed)
}

func threadClose(t *testing.T, p *Pair) {
	for _, spin := range []time.Duration{0, time.Nanosecond, -1} {
		w, err := p.Context.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadMulti, Spin: spin})
		require.NoError(t, err)
		var started, wg sync.WaitGroup
		started.Add(goroutines)
		wg.Go(func() {
			crowd(goroutines, func(g int) {
				r := w.TagRecv(make([]byte, 8), ucp.Tag(g), exact)
				started.Done()
				switch g % 4 {
				case 0:
					err := w.Run(p.deadline)
					if !errors.Is(err, ucp.ErrClosed) {
						t.Errorf("run: %v", err)
					}
				case 1:
					if err := w.WaitUntil(p.deadline, func() bool { return false }); !errors.Is(err, ucp.ErrClosed) {
						t.Errorf("wait until: %v", err)
					}
				default:
					if _, err := r.Wait(p.deadline); !errors.Is(err, ucp.ErrClosed) {
						t.Errorf("wait: %v", err)
					}
				}
			})
		})
		started.Wait()
		time.Sleep((spin + 2) * time.Millisecond / 2) // a moment, so that some sleep
		require.NoError(t, w.Close())
		wg.Wait()
	}
}

// threadBaton: of many who wait the one who progresses is served first, and the
// next goes on, with no other driver.
func threadBaton(t *testing.T, p *Pair) {
	a, b, ab := alone(p, ucp.ThreadMulti, time.Nanosecond)
	if a != b {
		ctx, cancel := context.WithCancel(p.deadline)
		defer cancel()
		go func() { _ = a.Run(ctx) }()
	}
	for round := range scaled(50) {
		var rr [goroutines]ucp.RecvRequest
		for g := range rr {
			rr[g] = b.TagRecv(make([]byte, 8), ucp.Tag(g), exact)
		}
		order := make(chan int, goroutines)
		var wg sync.WaitGroup
		for g := range rr {
			wg.Go(func() {
				ctx := p.deadline
				if g == round%goroutines { // one gives up, perhaps with the progress in its hands
					short, cancel := context.WithTimeout(ctx, time.Duration(round)*10*time.Microsecond)
					defer cancel()
					if _, err := rr[g].Wait(short); err == nil {
						order <- g
						return
					}
				}
				if _, err := rr[g].Wait(ctx); err != nil {
					t.Errorf("receive %d: %v", g, err)
				}
				order <- g
			})
		}
		for g := range rr {
			require.NoError(t, ab.TagSendUint64(1, ucp.Tag(g)).Err())
			select {
			case got := <-order:
				require.Equal(t, g, got)
			case <-p.deadline.Done():
				t.Fatalf("message %d of round %d woke no goroutine", g, round)
			}
		}
		wg.Wait()
	}
}

// threadShared: all waits end, one gets the result.
func threadShared(t *testing.T, p *Pair) {
	a, b, ab := alone(p, ucp.ThreadMulti, 0)
	if a != b {
		ctx, cancel := context.WithCancel(p.deadline)
		defer cancel()
		go func() { _ = a.Run(ctx) }()
	}
	for range scaled(100) {
		r := b.TagRecv(make([]byte, 8), 1, exact)
		var got, stale, looked atomic.Int32
		var ready, wg sync.WaitGroup
		ready.Add(goroutines)
		wg.Go(func() {
			crowd(goroutines, func(g int) {
				ready.Done()
				if g%2 == 0 {
					if r.Request.Wait(p.deadline) == nil {
						looked.Add(1)
					}
					return
				}
				_, err := r.Wait(p.deadline)
				switch {
				case err == nil:
					got.Add(1)
				case errors.Is(err, ucp.ErrStale):
					stale.Add(1)
				}
			})
		})
		ready.Wait()
		require.NoError(t, ab.TagSendUint64(1, 1).Err())
		wg.Wait()
		require.EqualValues(t, 1, got.Load())
		require.EqualValues(t, goroutines/2-1, stale.Load())
		require.EqualValues(t, goroutines/2, looked.Load())
	}
}

func threadContexts(t *testing.T, p *Pair) {
	self := p.Alone()
	crowd(4, func(g int) {
		c, err := p.Factory.open(ucp.Config{})
		if err != nil {
			t.Errorf("open: %v", err)
			return
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}()
		w, err := c.NewWorker(ucp.WorkerConfig{})
		if err != nil {
			t.Errorf("worker: %v", err)
			return
		}
		to := w
		if !self {
			if to, err = c.NewWorker(ucp.WorkerConfig{}); err != nil {
				t.Errorf("worker: %v", err)
				return
			}
		}
		e, err := w.NewEndpoint(to.Address(), ucp.EndpointConfig{})
		if err != nil {
			t.Errorf("endpoint: %v", err)
			return
		}
		if err := p.sendAddress(w, to, e); err != nil {
			t.Errorf("connect: %v", err)
			return
		}
		buf := make([]byte, 8)
		for i := range scaled(100) {
			e.TagSendUint64(uint64(i), 1)
			if _, err := to.TagRecv(buf, 1, exact).Wait(p.deadline); err != nil || buf[0] != byte(i) {
				t.Errorf("context %d, message %d: %v", g, i, err)
				return
			}
		}
	})
}

// threadAM: each goroutine asks and waits for its answer, which a handler sends.
func threadAM(t *testing.T, p *Pair) {
	a, b, ab := alone(p, ucp.ThreadMulti, 0)
	const ask, answer = 1, 2
	require.NoError(t, b.HandleAM(ask, func(m *ucp.AM) {
		m.From.AMSend(answer, m.Header, nil)
	}))
	var answers [goroutines]atomic.Int64
	require.NoError(t, a.HandleAM(answer, func(m *ucp.AM) {
		answers[m.Header[0]].Add(1)
	}))
	ctx, cancel := context.WithCancel(p.deadline)
	var driver sync.WaitGroup
	if a != b {
		driver.Go(func() { _ = b.Run(ctx) })
	}
	rounds := scaled(200)
	crowd(goroutines, func(g int) {
		header, data := []byte{byte(g)}, pattern(100*g, byte(g))
		for i := range rounds {
			r := ab.AMSendWith(ask, header, data, ucp.Opts{Flags: ucp.WantReply})
			if err := r.Wait(p.deadline); err != nil {
				t.Errorf("goroutine %d, message %d: %v", g, i, err)
				return
			}
			err := a.WaitUntil(p.deadline, func() bool { return answers[g].Load() > int64(i) })
			if err != nil {
				t.Errorf("goroutine %d, answer %d: %v", g, i, err)
				return
			}
		}
	})
	cancel()
	driver.Wait()
	for g := range answers {
		require.EqualValues(t, rounds, answers[g].Load(), "goroutine %d", g)
	}
}

// threadTurns: nothing in a worker belongs to one goroutine, only to one at a
// time.
func threadTurns(t *testing.T, p *Pair) {
	a, b, ab := alone(p, ucp.ThreadSerialized, 0)
	var turn sync.Mutex
	crowd(goroutines, func(g int) {
		in, out := make([]byte, 100), pattern(100, byte(g))
		for range scaled(200) {
			turn.Lock()
			r := b.TagRecv(in, ucp.Tag(g), exact)
			s := ab.TagSend(out, ucp.Tag(g))
			err := a.WaitUntil(p.deadline, s.Done)
			if err == nil {
				_, err = r.Wait(p.deadline)
			}
			turn.Unlock()
			if err != nil || string(in) != string(out) {
				t.Errorf("goroutine %d: %v", g, err)
				return
			}
		}
	})
}
