//go:build linux

package test

import (
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// errorsOf waits for requests; with ThreadMulti several goroutines do so at once.
func (s *survivor) errorsOf(rs ...ucp.Request) func() []error {
	return func() []error {
		errs := make([]error, len(rs))
		var all sync.WaitGroup
		for i, r := range rs {
			if s.mode == ucp.ThreadMulti && i < 4 {
				all.Go(func() { errs[i] = r.Wait(s.ctx) })
			} else {
				errs[i] = r.Wait(s.ctx)
			}
		}
		all.Wait()
		return errs
	}
}

// unended lists the requests that have not ended.
func unended(rs []ucp.Request) (open []ucp.Request) {
	for _, r := range rs {
		if !r.Done() {
			open = append(open, r)
		}
	}
	return open
}

// tied posts receives that only the death can end.
func (s *survivor) tied(e ucp.Endpoint, n int) (rs []ucp.Request) {
	for range n {
		rs = append(rs, s.w.TagRecv(make([]byte, 8), tagNever, allBits).Tie(e).Request)
	}
	return rs
}

func idleOurs(s *survivor) func() []error {
	s.peer.expect("echoing")
	s.connectBoth()
	require.NoError(s.t, s.pingPong(s.e, 5))
	return s.errorsOf()
}

func idleTheirs(s *survivor) func() []error {
	s.takeStream(10, ucp.Endpoint{})
	s.connectBoth()
	return s.errorsOf()
}

func pingOurs(s *survivor) func() []error {
	s.peer.expect("echoing")
	s.connectBoth()
	require.NoError(s.t, s.pingPong(s.e, 100))
	return func() []error { return []error{s.pingPong(s.e, 1<<40)} }
}

func pingTheirs(s *survivor) func() []error {
	s.connectBoth()
	buf := make([]byte, 8)
	pong := func(n int) error {
		for range n {
			if _, err := s.w.TagRecv(buf, tagPing, allBits).Tie(s.e).Wait(s.ctx); err != nil {
				return err
			}
			if err := s.e.TagSend(buf, tagPong).Wait(s.ctx); err != nil {
				return err
			}
		}
		return nil
	}
	require.NoError(s.t, pong(100))
	return func() []error { return []error{pong(1 << 40)} }
}

func tiedReceives(s *survivor) func() []error {
	s.peer.expect("echoing")
	s.connectBoth()
	require.NoError(s.t, s.pingPong(s.e, 5))
	return s.errorsOf(append(s.tied(s.e, 32), s.tied(s.twin, 32)...)...)
}

func tiedUnconnected(s *survivor) func() []error {
	s.peer.expect("serving")
	s.alone = true
	return s.errorsOf(s.tied(s.e, 8)...)
}

func tiedToSender(s *survivor) func() []error {
	s.alone = true
	s.takeStream(10, ucp.Endpoint{})
	return s.errorsOf(s.tied(s.e, 8)...)
}

// takeStream receives n of the peer's numbered messages, of which the first is
// due, and gives the error that ended that. Receives are tied to e, if any.
func (s *survivor) takeStream(n int, e ucp.Endpoint) (taken int, err error) {
	buf := make([]byte, longest)
	for ; taken < n; taken++ {
		r := s.w.TagRecv(buf, tagStream, allBits)
		if e != (ucp.Endpoint{}) {
			r = r.Tie(e)
		}
		m, err := r.Wait(s.ctx)
		if err != nil {
			return taken, err
		}
		_, k, err := read(buf[:m.Len])
		require.NoError(s.t, err)
		require.EqualValues(s.t, s.streamed, k, "messages come once and in order")
		s.streamed++
	}
	return taken, nil
}

func streamOurs(s *survivor) func() []error {
	s.peer.expect("silent")
	s.connectBoth()
	var rs []ucp.Request
	for n := range uint64(300) {
		p := make([]byte, sizeOf(1, n))
		fill(p, 1, n)
		rs = append(rs, s.e.TagSend(p, tagStream), s.twin.TagSendUint64(n, tagNever),
			s.e.TagSendInline(p[:16], tagNever), s.twin.TagSendV([][]byte{p, p}, tagNever))
	}
	rs = unended(rs)
	require.Greater(s.t, len(rs), 100, "sends that wait")
	return s.errorsOf(rs...)
}

func streamTheirs(s *survivor) func() []error {
	s.connectBoth()
	_, err := s.takeStream(1000, s.e)
	require.NoError(s.t, err)
	return func() []error {
		n, err := s.takeStream(1<<40, s.e)
		s.t.Logf("%d messages came before the error", n)
		return []error{err}
	}
}

func longOurs(s *survivor) func() []error {
	s.peer.expect("ready")
	s.connectBoth()
	send := s.e.TagSend(make([]byte, big), tagBig)
	half := false
	until(s.t, func() bool {
		select {
		case line := <-s.peer.lines:
			require.Equal(s.t, "half", line)
			half = true
		default:
		}
		return half
	}, s.w.Progress)
	require.False(s.t, send.Done())
	return s.errorsOf(append(s.tied(s.e, 1), send, s.e.Flush())...)
}

func longTheirs(s *survivor) func() []error {
	s.connectBoth()
	recv := s.w.TagRecv(make([]byte, big), tagBig, allBits) // not tied: its message began
	s.takeHalf()
	require.False(s.t, recv.Done())
	return s.errorsOf(append(s.tied(s.e, 1), recv.Request)...)
}

// takeHalf takes in a good hundred fragments.
func (s *survivor) takeHalf() {
	s.peer.expect("sending")
	n := 0
	until(s.t, func() bool { return n >= 100 }, func() int {
		k := s.w.Progress()
		n += k
		return k
	})
}

func longUnexpected(s *survivor) func() []error {
	s.connectBoth()
	s.takeHalf()
	return func() []error {
		for range 5000 {
			s.w.Progress()
		}
		return s.errorsOf(s.w.TagRecv(make([]byte, big), tagBig, allBits).Tie(s.e).Request)()
	}
}

// accessOurs uses the peer's memory in all ways that its kind has.
func accessOurs(s *survivor) func() []error {
	s.connectBoth()
	var err error
	s.key, err = s.unpack(s.e, s.peer.hear())
	require.NoError(s.t, err)
	add, addErr := ucp.AtomicAt[uint64](s.key, 8)
	out, in := make([]byte, 1000), make([]byte, 1000)
	access := func(n int) (errs []error) {
		for i := range uint64(n) {
			fill(out, 3, i)
			errs = append(errs[:0], s.key.Put(out, 64).Wait(s.ctx), s.key.PutUint64(i, 0).Wait(s.ctx))
			v, err := s.key.GetUint64(0).Wait(s.ctx)
			errs = append(errs, err, s.key.Get(in, 64).Wait(s.ctx))
			if addErr == nil {
				_, err = add.FetchAdd(1).Wait(s.ctx)
				errs = append(errs, err, add.Add(1).Wait(s.ctx))
			}
			errs = append(errs, s.e.Flush().Wait(s.ctx))
			if first := slices.IndexFunc(errs, func(err error) bool { return err != nil }); first >= 0 {
				return errs[first:] // all that follow the first, the flush among them
			}
			require.Equal(s.t, i, v)
			require.Equal(s.t, out, in)
			s.w.Progress()
		}
		return nil
	}
	require.Empty(s.t, access(1000))
	return func() []error { return access(1 << 40) }
}

// accessTheirs has the peer die while it uses this process's memory.
func accessTheirs(s *survivor) func() []error {
	s.connectBoth()
	allocated, err := s.x.Allocate(big, ucp.MemConfig{})
	require.NoError(s.t, err)
	own, err := s.x.Register(make([]byte, big), ucp.MemConfig{})
	require.NoError(s.t, err)
	for _, m := range []*ucp.MemHandle{allocated, own} {
		s.peer.say(hex.EncodeToString(m.Key()))
	}
	s.peer.expect("accessing")
	until(s.t, func() bool { return allocated.Load64(0) > 100 }, s.w.Progress)
	tied := s.tied(s.e, 1)
	return func() []error {
		errs := s.errorsOf(tied...)()
		s.notice()
		began := time.Now()
		assert.NoError(s.t, allocated.Close())
		s.t.Logf("allocated memory that the dead peer used was closed within %v", time.Since(began))
		// Where the peer died within an access, the memory stays pinned.
		if err := own.Close(); err != nil {
			assert.ErrorIs(s.t, err, ucp.ErrBufferExposed)
			s.exposed = true
		}
		assert.Less(s.t, time.Since(began), 10*time.Second)
		return errs
	}
}

func flushOurs(s *survivor) func() []error {
	s.peer.expect("silent")
	s.connectBoth()
	buf := make([]byte, 1000)
	for range 300 {
		s.e.TagSend(buf, tagNever) // dropped: a flush tells of them
	}
	rs := unended([]ucp.Request{s.e.Flush(), s.twin.Flush(), s.w.Flush()})
	require.Len(s.t, rs, 3)
	return s.errorsOf(rs...)
}

func flushTheirs(s *survivor) func() []error {
	s.connectBoth()
	s.peer.expect("false") // it has not ended
	return func() []error {
		n, err := s.takeStream(1<<40, s.e)
		s.t.Logf("%d messages came before the error", n)
		return []error{err}
	}
}

func beforeAccept(s *survivor) func() []error {
	s.peer.expect("silent")
	s.connectBoth()
	rs := s.tied(s.e, 4)
	for range 300 {
		rs = append(rs, s.e.TagSend(make([]byte, 1000), tagNever))
	}
	rs = append(rs, s.e.TagSend(make([]byte, big), tagNever), s.e.Flush())
	return s.errorsOf(unended(rs)...)
}

func beforeAccepted(s *survivor) func() []error {
	s.peer.expect("greeted")
	s.connectBoth()
	return func() []error {
		buf := make([]byte, 8)
		for n := byte(0); ; n++ {
			_, err := s.w.TagRecv(buf, tagStream, allBits).Tie(s.e).Wait(s.ctx)
			if err != nil {
				return []error{err}
			}
			require.Less(s.t, n, byte(3))
			require.Equal(s.t, n, buf[0])
		}
	}
}
