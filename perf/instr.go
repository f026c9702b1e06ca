package perf

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/goucx/goucx/ucp"
)

// Counted is an operation whose instructions are counted. It executes the real path of a user's
// call. The call is between two workers of one process, over the transports that the settings
// allow, or between two verbs devices.
type Counted struct {
	// Name of the row, such as "tag 8 B pair".
	Name string
	// Symbol is the function whose execution is counted. It only calls the operation in a loop.
	Symbol string

	// open sets up what run works on.
	open func(cfg Config) (run func(n int) error, closeAll func() error, err error)
}

const symbolPrefix = "github.com/goucx/goucx/perf."

// CountedOps returns the counted operations. The counter is to be enabled at Symbol; the loop adds
// two or three instructions per operation.
func CountedOps() []Counted {
	row := func(name, f string, run func(s *instrSide, n int) error) Counted {
		return Counted{name, symbolPrefix + f, overUCP(ucp.ThreadSingle, false, run)}
	}
	byThread := func(name, f string, run func(s *instrSide, n int) error) Counted {
		return Counted{name, symbolPrefix + f, overUCP(ucp.ThreadSingle, true, run)}
	}
	put := func(s *instrSide, n int) error { return countPut(s.key, s.out, n) }
	tag := func(s *instrSide, n int) error { return countTag(s.b, s.ep, s.out, s.in, n) }
	return []Counted{
		row("put 8 B", "countPut", put),
		row("put 8 B + flush", "countPutFlush", func(s *instrSide, n int) error { return countPutFlush(s.ep, s.key, s.out, n) }),
		row("get 8 B", "countGet", func(s *instrSide, n int) error { return countGet(s.key, s.in, n) }),
		row("fetch-add 8 B", "countFetchAdd", func(s *instrSide, n int) error { return countFetchAdd(s.word, n) }),
		row("flush", "countFlush", func(s *instrSide, n int) error { return countFlush(s.ep, n) }),
		row("fence", "countFence", func(s *instrSide, n int) error { return countFence(s.a, n) }),
		row("tag 8 B pair", "countTag", tag),
		row("am 8 B pair", "countAM", func(s *instrSide, n int) error { return countAM(s.b, s.ep, s.out, &s.got, n) }),
		row("idle progress, sender", "countIdle", func(s *instrSide, n int) error { return countIdle(s.a, n) }),
		row("idle progress, receiver", "countIdle", func(s *instrSide, n int) error { return countIdle(s.b, n) }),
		{"tag 8 B pair, multi", symbolPrefix + "countTag", overUCP(ucp.ThreadMulti, false, tag)},
		byThread("put 8 B, by a Thread", "countPut", put),
		byThread("tag 8 B pair, by a Thread", "countTag", tag),
		{"RC send 8 B pair", symbolPrefix + "countSend", openCountedSend},
	}
}

// CountedWarm is how many operations RunCounted executes before the counted ones, also under
// Symbol. After them connections are established, rings are warm and slabs have grown.
const CountedWarm = 64 * CountedCall

// CountedCall is the number of operations in one call of the counted function. Calls are short, so
// that the scheduler runs between them. If it ran during a call, it would move the goroutine to
// another stack, where callgrind loses it.
const CountedCall = 128

// RunCounted sets up both sides in this process. It executes operation c CountedWarm times and
// then n times; n is a multiple of CountedCall.
func RunCounted(cfg Config, c Counted, n int) error {
	run, closeAll, err := c.open(cfg)
	if err != nil {
		return fmt.Errorf("set up %s: %w", c.Name, err)
	}
	growStack()
	for left := CountedWarm + n; left > 0 && err == nil; left -= CountedCall {
		runtime.Gosched()
		err = run(CountedCall)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", c.Name, err)
	}
	return errors.Join(err, closeAll())
}

// growStack makes the goroutine's stack larger than a counted function needs. If it grew during a
// call, callgrind would lose that too.
//
//go:noinline
func growStack() byte {
	var frame [64 << 10]byte
	for i := range frame {
		frame[i] = byte(i)
	}
	return frame[len(frame)/2]
}

// overUCP opens two workers for run. With thread a Thread of one of them sends.
func overUCP(mode ucp.ThreadMode, thread bool, run func(s *instrSide, n int) error) func(Config) (func(int) error, func() error, error) {
	return func(cfg Config) (func(int) error, func() error, error) {
		s, err := openInstr(cfg, mode, thread)
		if err != nil {
			return nil, nil, err
		}
		return func(n int) error { return run(s, n) }, s.ctx.Close, nil
	}
}

// instrSide holds the objects of the operations: a sends, or a Thread of it, b receives.
type instrSide struct {
	ctx     *ucp.Context
	a, b    *ucp.Worker
	ep      ucp.Endpoint
	key     *ucp.RemoteKey
	word    ucp.Atomic[uint64]
	in, out []byte
	got     int // number of handled active messages
}

func openInstr(cfg Config, mode ucp.ThreadMode, thread bool) (*instrSide, error) {
	s := &instrSide{in: make([]byte, 8), out: make([]byte, 8)}
	var err error
	s.ctx, err = ucp.Open(ucp.Config{Providers: cfg.Providers, Settings: cfg.Settings, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	if err = s.connect(mode, thread); err != nil {
		return nil, errors.Join(err, s.ctx.Close())
	}
	return s, nil
}

func (s *instrSide) connect(mode ucp.ThreadMode, thread bool) (err error) {
	if s.a, err = s.ctx.NewWorker(ucp.WorkerConfig{Mode: mode}); err != nil {
		return err
	}
	if s.b, err = s.ctx.NewWorker(ucp.WorkerConfig{Mode: mode}); err != nil {
		return err
	}
	if s.ep, err = s.a.NewEndpoint(s.b.Address(), ucp.EndpointConfig{}); err != nil {
		return err
	}
	if thread {
		th, err := s.a.NewThread()
		if err != nil {
			return err
		}
		s.ep = s.ep.On(th)
	}
	m, err := s.ctx.Allocate(4096, ucp.MemConfig{})
	if err != nil {
		return err
	}
	if err = s.b.HandleAM(countedAM, func(*ucp.AM) { s.got++ }); err != nil {
		return err
	}
	r := s.b.TagRecv(s.in, tagData, tagExact) // connects both; not by countTag: callgrind loses a function that yields
	s.ep.TagSend(s.out, tagData)
	if _, err = r.Wait(context.Background()); err != nil {
		return err
	}
	if s.key, err = s.ep.UnpackKey(m.Key()); err != nil {
		return err
	}
	if err = errors.Join(s.key.Put(s.out, 0).Err(), s.key.Get(s.in, 0).Err()); err != nil {
		return err
	}
	s.word, err = ucp.AtomicAt[uint64](s.key, 8)
	return err
}

// unrolled is the number of calls of a short operation in its loop body. It keeps the six
// instructions of the loop from counting as the operation's. Counts are multiples of it.
const unrolled = 8

//go:noinline
func countPut(k *ucp.RemoteKey, p []byte, n int) error {
	for range n / unrolled {
		k.Put(p, 0)
		k.Put(p, 0)
		k.Put(p, 0)
		k.Put(p, 0)
		k.Put(p, 0)
		k.Put(p, 0)
		k.Put(p, 0)
		k.Put(p, 0)
	}
	return nil
}

//go:noinline
func countPutFlush(e ucp.Endpoint, k *ucp.RemoteKey, p []byte, n int) error {
	ctx := context.Background()
	for range n {
		k.Put(p, 0)
		if err := e.Flush().Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

//go:noinline
func countGet(k *ucp.RemoteKey, p []byte, n int) error {
	for range n / unrolled {
		k.Get(p, 0)
		k.Get(p, 0)
		k.Get(p, 0)
		k.Get(p, 0)
		k.Get(p, 0)
		k.Get(p, 0)
		k.Get(p, 0)
		k.Get(p, 0)
	}
	return nil
}

//go:noinline
func countFetchAdd(w ucp.Atomic[uint64], n int) error {
	ctx := context.Background()
	for range n {
		if _, err := w.FetchAdd(1).Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

//go:noinline
func countFlush(e ucp.Endpoint, n int) error {
	ctx := context.Background()
	for range n {
		if err := e.Flush().Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

//go:noinline
func countFence(w *ucp.Worker, n int) error {
	for range n {
		w.Fence()
	}
	return nil
}

//go:noinline
func countTag(b *ucp.Worker, e ucp.Endpoint, out, in []byte, n int) error {
	ctx := context.Background()
	for range n {
		r := b.TagRecv(in, tagData, tagExact)
		e.TagSend(out, tagData)
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// countedAM is the ID of the counted active message.
const countedAM ucp.AMID = 1

//go:noinline
func countAM(b *ucp.Worker, e ucp.Endpoint, out []byte, got *int, n int) error {
	*got = 0
	for i := range n {
		e.AMSend(countedAM, nil, out)
		for *got <= i {
			b.Progress()
		}
	}
	return nil
}

//go:noinline
func countIdle(w *ucp.Worker, n int) error {
	for range n / unrolled {
		w.Progress()
		w.Progress()
		w.Progress()
		w.Progress()
		w.Progress()
		w.Progress()
		w.Progress()
		w.Progress()
	}
	return nil
}
