package ucptest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var waitListCases = []Case{
	{"requests of every kind in one list", listKinds},
	{"a list of requests that are always complete", listFair},
	{"lists of several workers, and other bad lists", listInvalid},
	{"a list whose context ends", listContext},
	{"a list whose operations fail", listFailing},
	{"a list in a handler", listHandler},
	{"sixteen goroutines wait for lists", listCrowd},
	{"a list whose requests others use too", listShared},
	{"close while lists are waited for", listClose},
	{"a nil context", nilContext},
}

// beside runs f, which waits on worker A, on a goroutine of its own and drives B meanwhile.
func (p *Pair) beside(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	p.driveUntil(&wg)
}

// listKinds: sends, receives and fetches, complete at the call and later, waited for one at
// a time, some at a time and all at once.
func listKinds(t *testing.T, p *Pair) {
	m, err := p.Context.Allocate(64, ucp.MemConfig{})
	require.NoError(t, err)
	m.Bytes()[24] = 42
	k, err := p.AB.UnpackKey(m.Key())
	require.NoError(t, err)
	word, err := ucp.AtomicAt[uint64](k, 8)
	require.NoError(t, err)
	p.next(p.AB, p.B)
	p.next(p.BA, p.A)
	const (
		plain, synced, expected, arrived, put, got, added, flushed, stale, none = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
		total                                                                   = 9
	)
	start := func(round int) (rs []ucp.AnyRequest, want [total]ucp.Result) {
		tag := ucp.Tag(round) << 8
		p.BA.TagSendUint64(1, tag|arrived)
		p.Until(func() bool { _, ok := p.A.TagProbe(tag|arrived, exact); return ok })
		old := p.A.TagRecv(make([]byte, 8), 0, 0)
		_, err := old.Wait(p.deadline)
		require.NoError(t, err)
		p.BA.TagSendUint64(1, tag|arrived)
		p.Until(func() bool { _, ok := p.A.TagProbe(tag|arrived, exact); return ok })

		before := word.Load()
		p.Until(before.Done)
		value, err := before.Wait(p.deadline)
		require.NoError(t, err)
		rs = []ucp.AnyRequest{
			p.AB.TagSendUint64(1, tag).Any(), p.AB.TagSendSync([]byte("sync"), tag|synced).Any(),
			p.A.TagRecv(make([]byte, 5), tag|expected, exact).Any(), p.A.TagRecv(make([]byte, 8), tag|arrived, exact).Any(),
			k.PutUint64(uint64(round)+7, 16).Any(), k.GetUint64(24).Any(),
			word.FetchAdd(2).Any(), p.AB.Flush().Any(), old.Any(),
			{},
		}
		for i := range want {
			want[i].Index = i
		}
		want[expected].Message = ucp.Message{Tag: tag | expected, Len: 3}
		want[arrived].Message = ucp.Message{Tag: tag | arrived, Len: 8}
		want[got].Value, want[added].Value = 42, value
		want[stale].Err = ucp.ErrStale
		return rs, want
	}
	// The peer's part: it receives, and sends what is expected.
	peer := func(round int) {
		tag := ucp.Tag(round) << 8
		p.B.TagRecv(make([]byte, 8), tag, exact).Drop()
		p.B.TagRecv(make([]byte, 8), tag|synced, exact).Drop()
		p.BA.TagSendInline([]byte("abc"), tag|expected).Any()
	}
	for round, wait := range []func(rs []ucp.AnyRequest, got *[total]ucp.Result) error{
		func(rs []ucp.AnyRequest, out *[total]ucp.Result) error {
			for range total {
				r, err := ucp.WaitAny(p.deadline, rs)
				if r.Index < 0 || !errors.Is(err, r.Err) || rs[r.Index] != (ucp.AnyRequest{}) {
					return fmt.Errorf("%+v: %w", r, err)
				}
				out[r.Index] = r
			}
			return nil
		},
		func(rs []ucp.AnyRequest, out *[total]ucp.Result) error {
			for left := total; left > 0; {
				var some [4]ucp.Result
				n, err := ucp.WaitSome(p.deadline, rs, some[:])
				if n == 0 {
					return err
				}
				left -= n
				for _, r := range some[:n] {
					out[r.Index] = r
				}
			}
			return nil
		},
		func(rs []ucp.AnyRequest, out *[total]ucp.Result) error {
			var all [none + 1]ucp.Result
			all[none].Index = 77
			if err := ucp.WaitAll(p.deadline, rs, all[:]); !errors.Is(err, ucp.ErrStale) {
				return err
			}
			if all[none].Index != 77 {
				return errors.New("the result of no request was written")
			}
			copy(out[:], all[:])
			return nil
		},
	} {
		rs, want := start(round)
		peer(round)
		var out [total]ucp.Result
		var err error
		p.beside(func() { err = wait(rs, &out) })
		require.NoError(t, err, "round %d", round)
		for i := range out {
			require.ErrorIs(t, out[i].Err, want[i].Err, "round %d, request %d", round, i)
			out[i].Err, want[i].Err = nil, nil
		}
		require.Equal(t, want, out, "round %d", round)
		require.Equal(t, make([]ucp.AnyRequest, total+1), rs, "what was returned is no request any more")
		r, err := ucp.WaitAny(nil, rs) //nolint:staticcheck // nothing to wait for: it does not look at the context
		require.NoError(t, err)
		require.Equal(t, ucp.Result{Index: -1}, r)
		n, err := ucp.WaitSome(p.deadline, nil, nil)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, ucp.WaitAll(p.deadline, rs, nil))
	}

	// Lists of one kind, without Any.
	recvs := []ucp.RecvRequest{p.B.TagRecv(make([]byte, 8), 1, exact), p.B.TagRecv(make([]byte, 8), 2, exact)}
	sends := []ucp.Request{p.AB.TagSendUint64(1, 1), p.AB.TagSendUint64(1, 2)}
	out := make([]ucp.Result, 2)
	p.Until(func() bool { return recvs[0].Done() && recvs[1].Done() })
	require.NoError(t, ucp.WaitAll(p.deadline, recvs, out))
	require.Equal(t, []ucp.Result{{Message: ucp.Message{Tag: 1, Len: 8}}, {Index: 1, Message: ucp.Message{Tag: 2, Len: 8}}}, out)
	require.NoError(t, ucp.WaitAll(p.deadline, sends, nil))
	values := []ucp.Fetch[uint64]{word.Load(), word.Load()}
	p.Until(func() bool { return values[0].Done() && values[1].Done() })
	require.NoError(t, ucp.WaitAll(p.deadline, values[:1], out))
	v, err := values[1].Wait(p.deadline)
	require.NoError(t, err)
	require.Equal(t, v, out[0].Value)
}

// listFair: of requests that are all complete each has its turn, in one list, and in lists
// that are used in turn.
func listFair(t *testing.T, p *Pair) {
	buf := make([]byte, 8)
	complete := map[string]func() ucp.AnyRequest{
		"at the call": func() ucp.AnyRequest { return ucp.Request{}.Any() },
		"later": func() ucp.AnyRequest {
			r := p.A.TagRecv(buf, 1, exact)
			r.Cancel()
			return r.Any()
		},
	}
	for name, request := range complete {
		for _, lists := range []int{1, 2, 3, 4} {
			var rs [4][4]ucp.AnyRequest
			var turns [4][4]int
			for l := range rs {
				for i := range rs[l] {
					rs[l][i] = request()
				}
			}
			const rounds = 400
			for range rounds {
				for l := range lists {
					r, _ := ucp.WaitAny(p.deadline, rs[l][:])
					turns[l][r.Index]++
					rs[l][r.Index] = request()
				}
			}
			for l := range lists {
				for i, n := range turns[l] {
					require.InDelta(t, rounds/4, n, rounds/8, "complete %s, list %d of %d, request %d", name, l, lists, i)
				}
			}
		}
	}
}

func listInvalid(t *testing.T, p *Pair) {
	other := p.NewWorker()
	here, there := p.A.TagRecv(make([]byte, 8), 1, exact), other.TagRecv(make([]byte, 8), 1, exact)
	rs := []ucp.AnyRequest{{}, ucp.Request{}.Any(), here.Any(), there.Any()}
	out := make([]ucp.Result, 4)
	r, err := ucp.WaitAny(p.deadline, rs)
	require.ErrorIs(t, err, ucp.ErrInvalid, "two workers")
	require.Equal(t, -1, r.Index)
	n, err := ucp.WaitSome(p.deadline, rs, out)
	require.ErrorIs(t, err, ucp.ErrInvalid, "two workers")
	require.Zero(t, n)
	require.ErrorIs(t, ucp.WaitAll(p.deadline, rs, nil), ucp.ErrInvalid, "two workers")
	n, err = ucp.WaitSome(p.deadline, rs[:3], nil)
	require.ErrorIs(t, err, ucp.ErrInvalid, "no room")
	require.Zero(t, n)
	require.ErrorIs(t, ucp.WaitAll(p.deadline, rs, out[:3]), ucp.ErrInvalid, "too little room")
	require.NotEqual(t, ucp.AnyRequest{}, rs[1], "nothing was consumed")

	// Refused at the call.
	r, err = ucp.WaitAny(p.deadline, []ucp.AnyRequest{here.Any(), ucp.Endpoint{}.TagSend(nil, 1).Any()})
	require.ErrorIs(t, err, ucp.ErrClosed)
	require.Equal(t, 1, r.Index)
	r, err = ucp.WaitAny(p.deadline, []ucp.AnyRequest{here.Any(), ucp.RecvRequest{}.Any()})
	require.ErrorIs(t, err, ucp.ErrStale)
	require.Equal(t, 1, r.Index)
	for _, r := range []ucp.RecvRequest{here, there} {
		r.Cancel()
		r.Drop()
	}
}

// listContext: an outcome counts more than the end of the context, which takes nothing away.
func listContext(t *testing.T, p *Pair) {
	p.next(p.AB, p.B)
	never := p.B.TagRecv(make([]byte, 8), 9, exact)
	send := func() { require.NoError(t, p.AB.TagSendUint64(5, 1).Err()) }
	for range 2 {
		recv := p.B.TagRecv(make([]byte, 8), 1, exact)
		r, err := ucp.WaitAny(p.together(recv, send), []ucp.AnyRequest{never.Any(), recv.Any()})
		require.NoError(t, err)
		require.Equal(t, ucp.Result{Index: 1, Message: ucp.Message{Tag: 1, Len: 8}}, r)
	}

	ctx, cancel := context.WithCancelCause(p.deadline)
	cancel(errCause)
	r, err := ucp.WaitAny(ctx, []ucp.AnyRequest{never.Any()})
	require.ErrorIs(t, err, errCause)
	require.Equal(t, ucp.Result{Index: -1}, r)
	recv := p.B.TagRecv(make([]byte, 8), 1, exact)
	send()
	p.Until(recv.Done)
	rs, out := []ucp.AnyRequest{recv.Any(), never.Any()}, make([]ucp.Result, 2)
	require.ErrorIs(t, ucp.WaitAll(ctx, rs, out), errCause)
	require.Equal(t, 8, out[0].Len)
	require.Equal(t, []ucp.AnyRequest{{}, never.Any()}, rs, "what is left to wait for")

	// It ends while the goroutine sleeps.
	late, cancelLate := context.WithCancelCause(p.deadline)
	time.AfterFunc(5*time.Millisecond, func() { cancelLate(errCause) })
	_, err = ucp.WaitAny(late, rs)
	require.ErrorIs(t, err, errCause)
	never.Cancel()
	n, err := ucp.WaitSome(p.deadline, rs, out)
	require.ErrorIs(t, err, ucp.ErrCanceled)
	require.Equal(t, 1, n)
	require.Equal(t, 1, out[0].Index)
}

// listFailing: the outcomes of operations that fail with their peer.
func listFailing(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("a worker has no other peer")
	}
	victim := p.undriven()
	e := p.Connect(p.A, victim)
	rs := []ucp.AnyRequest{
		e.TagSendSync([]byte{1}, 1).Any(), e.TagSendWith(nil, 1, rndv).Any(), p.A.TagRecv(make([]byte, 8), 5, exact).Tie(e).Any(),
	}
	require.NoError(t, victim.Close())
	for range len(rs) {
		r, err := ucp.WaitAny(p.deadline, rs)
		require.GreaterOrEqual(t, r.Index, 0, "%v", err)
		require.Error(t, err)
		require.Equal(t, r.Err, err)
		require.True(t, errors.Is(err, ucp.ErrPeerFailed) || errors.Is(err, ucp.ErrRejected), "%v", err)
	}
}

func listHandler(t *testing.T, p *Pair) {
	ended := make(chan error, 1)
	never := p.B.TagRecv(make([]byte, 8), 9, exact)
	require.NoError(t, p.B.HandleAM(9, func(*ucp.AM) {
		_, err := ucp.WaitAny(context.Background(), []ucp.AnyRequest{never.Any()})
		ended <- err
	}))
	require.NoError(t, p.Wait(p.AB.AMSend(9, nil, nil)))
	p.Until(func() bool { return len(ended) == 1 })
	require.ErrorIs(t, <-ended, ucp.ErrInvalid)
	never.Cancel()
	never.Drop()
}

// listCrowd: goroutines wait for lists of receives on one worker that only the waits
// progress. Each message goes to the list of its goroutine; some receives are canceled by
// another goroutine, and no wait is left behind.
func listCrowd(t *testing.T, p *Pair) {
	const each = 8
	for _, spin := range []time.Duration{0, time.Nanosecond} {
		a, b, ab := alone(p, ucp.ThreadMulti, spin)
		ctx, cancel := context.WithCancel(p.deadline)
		var driver sync.WaitGroup
		if a != b {
			driver.Go(func() { _ = a.Run(ctx) })
		}
		crowd(goroutines, func(g int) {
			for round := range scaled(100) {
				if err := listRound(p, b, ab, ucp.Tag(g)<<32|ucp.Tag(round)<<8, each); err != nil {
					t.Errorf("goroutine %d, round %d: %v", g, round, err)
					return
				}
			}
		})
		cancel()
		driver.Wait()
	}
}

func listRound(p *Pair, b *ucp.Worker, ab ucp.Endpoint, tag ucp.Tag, n int) error {
	rs, canceled := make([]ucp.AnyRequest, n), make(map[int]bool)
	var helper sync.WaitGroup
	defer helper.Wait()
	var cancels []ucp.RecvRequest
	for i := range rs {
		r := b.TagRecv(make([]byte, 8), tag|ucp.Tag(i), exact)
		rs[i] = r.Any()
		if i%4 == 3 {
			canceled[i] = true
			cancels = append(cancels, r)
		}
	}
	helper.Go(func() {
		for i := n - 1; i >= 0; i-- {
			if canceled[i] {
				cancels[len(cancels)-1].Cancel()
				cancels = cancels[:len(cancels)-1]
			} else {
				ab.TagSendUint64(1, tag|ucp.Tag(i))
			}
		}
	})
	for range n {
		r, err := ucp.WaitAny(p.deadline, rs)
		switch {
		case r.Index < 0:
			return err
		case canceled[r.Index] != errors.Is(err, ucp.ErrCanceled):
			return fmt.Errorf("request %d: %w", r.Index, err)
		case err == nil && r.Message != (ucp.Message{Tag: tag | ucp.Tag(r.Index), Len: 8}):
			return fmt.Errorf("request %d: %+v", r.Index, r.Message)
		}
	}
	return nil
}

// listShared: a request that is in a list twice, that has a callback, that is dropped, or that
// another goroutine waits for as well, completes once, and no wait is left behind.
func listShared(t *testing.T, p *Pair) {
	_, b, ab := alone(p, ucp.ThreadMulti, time.Nanosecond)
	buf := make([]byte, 8)
	first := func(send bool, rs ...ucp.AnyRequest) (r ucp.Result, err error) {
		if send {
			time.AfterFunc(2*time.Millisecond, func() { ab.TagSendUint64(1, 1) })
		}
		return ucp.WaitAny(p.deadline, rs)
	}
	drive, stop := context.WithCancel(p.deadline)
	var driver sync.WaitGroup
	defer driver.Wait()
	defer stop()
	driver.Go(func() { _ = b.Run(drive) })

	recv := b.TagRecv(buf, 1, exact)
	r, err := first(true, recv.Any(), recv.Any())
	require.NoError(t, err)
	require.Equal(t, 8, r.Len)
	r, err = first(false, recv.Any())
	require.ErrorIs(t, err, ucp.ErrStale, "consumed before")
	require.Zero(t, r.Index)

	recv = b.TagRecv(buf, 1, exact)
	called := make(chan int, 1)
	require.True(t, recv.Notify(func(c ucp.Completion) { called <- c.Len }, 0))
	_, err = first(true, recv.Any())
	require.ErrorIs(t, err, ucp.ErrStale, "the callback has the result")
	require.Equal(t, 8, <-called)

	recv = b.TagRecv(buf, 1, exact)
	time.AfterFunc(time.Millisecond, recv.Drop)
	_, err = first(true, recv.Any())
	require.True(t, err == nil || errors.Is(err, ucp.ErrStale), "%v", err)

	for range scaled(100) {
		recv = b.TagRecv(buf, 1, exact)
		var got [3]error
		time.AfterFunc(100*time.Microsecond, func() { ab.TagSendUint64(1, 1) })
		crowd(3, func(g int) {
			if g == 0 {
				_, got[g] = recv.Wait(p.deadline)
			} else {
				_, got[g] = ucp.WaitAny(p.deadline, []ucp.AnyRequest{recv.Any()})
			}
		})
		had := 0
		for _, err := range got {
			if err == nil {
				had++
			} else {
				require.ErrorIs(t, err, ucp.ErrStale)
			}
		}
		require.Equal(t, 1, had, "one of them has the result")
	}
}

// listClose: waits for lists end with their worker.
func listClose(t *testing.T, p *Pair) {
	for _, driven := range []bool{false, true} {
		w, err := p.Context.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadMulti})
		require.NoError(t, err)
		var waits sync.WaitGroup
		waiting := make(chan struct{}, goroutines)
		if driven {
			waits.Go(func() { _ = w.Run(p.deadline) })
		}
		for g := range goroutines {
			waits.Go(func() {
				rs := []ucp.AnyRequest{w.TagRecv(nil, ucp.Tag(g), exact).Any(), {}, w.TagRecv(nil, 1<<20, exact).Any()}
				waiting <- struct{}{}
				r, err := ucp.WaitAny(p.deadline, rs)
				if r.Index < 0 || !errors.Is(err, ucp.ErrClosed) {
					t.Errorf("%d: %v", r.Index, err)
				}
			})
		}
		for range goroutines {
			<-waiting
		}
		time.Sleep(time.Millisecond) // most wait by now; the others are refused
		require.NoError(t, w.Close())
		waits.Wait()
	}
}

// nilContext: a wait that must wait panics, and leaves the worker as it is. One that need not
// does not look.
func nilContext(t *testing.T, p *Pair) {
	var none context.Context
	for _, w := range []*ucp.Worker{p.B, p.undriven()} {
		never := w.TagRecv(make([]byte, 8), 9, exact)
		for name, wait := range map[string]func(){
			"wait":              func() { _, _ = never.Wait(none) },
			"wait of a request": func() { _ = never.Request.Wait(none) },
			"finish":            func() { _, _ = never.Finish(none) },
			"finish of a request": func() {
				_ = never.Request.Finish(none)
			},
			"any":  func() { _, _ = ucp.WaitAny(none, []ucp.AnyRequest{never.Any()}) },
			"some": func() { _, _ = ucp.WaitSome(none, []ucp.AnyRequest{never.Any()}, make([]ucp.Result, 1)) },
			"all":  func() { _ = ucp.WaitAll(none, []ucp.RecvRequest{never}, nil) },
			"run":  func() { _ = w.Run(none) },
			"wait until": func() {
				_ = w.WaitUntil(none, func() bool { return false })
			},
		} {
			require.PanicsWithValue(t, "ucp: a wait needs a context, and got nil", wait, name)
			require.False(t, never.Done(), name)
		}
		never.Cancel()
		require.ErrorIs(t, never.Request.Wait(none), ucp.ErrCanceled)
		_, err := never.Wait(none)
		require.ErrorIs(t, err, ucp.ErrCanceled)
		require.NoError(t, ucp.Request{}.Wait(none))
		require.NoError(t, ucp.Request{}.Finish(none))
		require.NoError(t, w.WaitUntil(none, func() bool { return true }))
		require.NoError(t, ucp.WaitAll(none, []ucp.Request{{}, {}}, nil))
	}
	p.next(p.AB, p.B) // it progresses as before
}
