package ucp_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// readers opens two workers of a context over rc.
func readers(t *testing.T, env ...string) (c *ucp.Context, a, b *ucp.Worker, ab ucp.Endpoint) {
	t.Helper()
	c, err := ucp.Open(ucp.Config{Providers: provider("rc"), Settings: settings(t, append(env, "UCX_SOFT_LINK=inproc")...)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	a, err = c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	b, err = c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	ab, err = a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	return c, a, b, ab
}

// both drives the workers until done.
func both(t *testing.T, a, b *ucp.Worker, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); {
		require.True(t, time.Now().Before(end), "waited too long")
		a.Progress()
		b.Progress()
	}
}

func readsOf(w *ucp.Worker) (n uint64) {
	for _, v := range w.Stats().Snapshot() {
		if v.Name == "ucp.read" {
			n = v.Value
		}
	}
	return n
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// Long messages are read, from memory of the program's that is registered and
// from any other, into either; cut where the receive is shorter.
func TestLongMessagesAreRead(t *testing.T) {
	c, a, b, ab := readers(t)
	const n = 1 << 20
	mine, err := c.Allocate(n, ucp.MemConfig{})
	require.NoError(t, err)
	theirs, err := c.Register(make([]byte, n+100), ucp.MemConfig{})
	require.NoError(t, err)
	want := noise(n)
	copy(mine.Bytes(), want)
	reads := uint64(0)
	for _, tc := range []struct {
		name     string
		from, to []byte
	}{
		{"any memory", bytes.Clone(want), make([]byte, n)},
		{"registered memory", mine.Bytes(), theirs.Bytes()[50:]},
		{"cut", mine.Bytes(), make([]byte, 100_000)},
		{"a part", mine.Bytes()[7 : n-9], make([]byte, n)},
	} {
		r := b.TagRecv(tc.to, 1, exact)
		s := ab.TagSend(tc.from, 1)
		both(t, a, b, func() bool { return r.Done() && s.Done() })
		require.NoError(t, s.Err(), tc.name)
		m, err := r.Wait(context.Background())
		if len(tc.to) < len(tc.from) {
			require.ErrorIs(t, err, ucp.ErrTruncated, tc.name)
		} else {
			require.NoError(t, err, tc.name)
		}
		assert.Equal(t, len(tc.from), m.Len, tc.name)
		k := min(len(tc.from), len(tc.to))
		assert.True(t, bytes.Equal(tc.from[:k], tc.to[:k]), tc.name)
		reads++
		assert.Equal(t, reads, readsOf(b), tc.name)
	}
	require.NoError(t, mine.Close())
	require.NoError(t, theirs.Close())
}

// A receiver without an endpoint of its own answers by one connection, however many
// messages come.
func TestReadsKeepTheConnection(t *testing.T) {
	_, a, b, ab := readers(t)
	data, buf := noise(1<<20), make([]byte, 1<<20)
	for n := range uint64(5) {
		r, s := b.TagRecv(buf, 1, exact), ab.TagSend(data, 1)
		both(t, a, b, func() bool { return r.Done() && s.Done() })
		require.NoError(t, s.Err())
		require.NoError(t, r.Err())
		require.True(t, bytes.Equal(data, buf))
		require.Equal(t, n+1, readsOf(b))
		connected := uint64(0)
		for _, v := range b.Stats().Snapshot() {
			if strings.HasSuffix(v.Name, ".connected") {
				connected += v.Value
			}
		}
		require.LessOrEqual(t, connected, uint64(1), "after %d messages", n+1)
	}
	require.NoError(t, ab.Close())
}

// What does not lie in one piece goes by messages, and so does a short message.
func TestMessagesThatAreNotRead(t *testing.T) {
	_, a, b, ab := readers(t)
	data := noise(300_000)
	r := b.TagRecv(make([]byte, len(data)), 1, exact)
	s := ab.TagSendV([][]byte{data[:100_000], data[100_000:]}, 1)
	both(t, a, b, func() bool { return r.Done() && s.Done() })
	require.NoError(t, s.Err())
	require.NoError(t, r.Err())
	r = b.TagRecv(make([]byte, 9), 1, exact)
	s = ab.TagSendSync(data[:9], 1)
	both(t, a, b, func() bool { return r.Done() && s.Done() })
	require.NoError(t, r.Err())
	assert.Zero(t, readsOf(b))
}

// An active message whose data its handler fetches is read too.
func TestFetchedMessagesAreRead(t *testing.T) {
	_, a, b, ab := readers(t)
	data := noise(200_000)
	var kept ucp.RetainedAM
	require.NoError(t, b.HandleAM(3, func(m *ucp.AM) { kept = m.Retain() }))
	s := ab.AMSendWith(3, nil, data, ucp.Opts{Flags: ucp.ForceRendezvous})
	both(t, a, b, func() bool { return kept != ucp.RetainedAM{} })
	got := make([]byte, len(data))
	r := kept.RecvInto(got)
	both(t, a, b, func() bool { return r.Done() && s.Done() })
	require.NoError(t, r.Err())
	assert.True(t, bytes.Equal(data, got))
	assert.EqualValues(t, 1, readsOf(b))
}

// Who aborts while his memory is read waits for that where another endpoint uses the
// connection, which goes on. Else he takes it back, which ends the connection. The
// receiver has all of the message or an error, and later messages go on.
func TestAbortWhileRead(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			_, a, b, ab := readers(t, "UCX_RC_TIMEOUT=300ms")
			for steps := range 40 {
				e := ab
				var err error
				if shared {
					e, err = a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
					require.NoError(t, err)
				}
				abortWhileRead(t, a, b, e, steps, shared)
				if !shared {
					ab, err = a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
					require.NoError(t, err)
				}
				r := b.TagRecv(make([]byte, 8), 2, exact)
				ab.TagSendUint64(1, 2)
				both(t, a, b, func() bool { return r.Done() || ab.Info().Err != nil })
				if shared {
					require.NoError(t, ab.Info().Err, "after %d steps", steps)
				} else if !r.Done() { // of the connection that ends
					ab.Abort(nil)
					ab, err = a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
					require.NoError(t, err)
					ab.TagSendUint64(1, 2)
				}
				both(t, a, b, r.Done)
				require.NoError(t, r.Err())
			}
		})
	}
}

// abortWhileRead aborts e some steps after it has begun to send.
func abortWhileRead(t *testing.T, a, b *ucp.Worker, e ucp.Endpoint, steps int, shared bool) {
	want := noise(1 << 20)
	data, got := bytes.Clone(want), make([]byte, len(want))
	r := b.TagRecv(got, 1, exact)
	s := e.TagSend(data, 1)
	for range steps {
		a.Progress()
		b.Progress()
	}
	e.Abort(nil)
	require.True(t, shared || s.Done(), "after %d steps", steps)
	both(t, a, b, s.Done)
	if s.Err() != nil {
		clear(data)
	}
	for range 1000 {
		a.Progress()
		b.Progress()
	}
	if !r.Done() {
		r.Cancel()
	}
	both(t, a, b, r.Done)
	if r.Err() == nil {
		require.True(t, bytes.Equal(want, got), "after %d steps", steps)
	}
}
