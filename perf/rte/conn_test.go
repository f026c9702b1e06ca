package rte

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs/protocol/protocoltest"
)

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}

func listenHere(t *testing.T, c Config) (*Listener, int) {
	t.Helper()
	l, err := listen(c, loopback)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l, l.Addr().(*net.TCPAddr).Port
}

// pair makes two connections that have greeted each other.
func pair(t *testing.T) (client, server *Conn) {
	t.Helper()
	l, port := listenHere(t, Config{Own: Identity{Version: "2", Host: "h", PID: 20}})
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		server, err = l.Accept(noStranger(t))
		assert.NoError(t, err)
	})
	client, err := Dial(t.Context(), "127.0.0.1", Config{Port: port, Own: Identity{Version: "1", Host: "g", PID: 10}})
	wg.Wait()
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return client, server
}

// noStranger is for listeners that only their client reaches.
func noStranger(t *testing.T) func(error) {
	return func(err error) { t.Error(err) }
}

func TestGreeting(t *testing.T) {
	c, s := pair(t)
	assert.Equal(t, "goucx 2 (pid 20 on h)", c.Peer().String())
	assert.Equal(t, "goucx 1 (pid 10 on g)", s.Peer().String())
	assert.Equal(t, []int{0, 1, 2, 2}, []int{c.Index(), s.Index(), c.Size(), s.Size()})
}

func TestGreetingGolden(t *testing.T) {
	js, err := json.Marshal(Identity{Version: "2", Host: "h", PID: 20})
	require.NoError(t, err)
	hello := record{Type: typeHello, Body: js}
	b, err := appendRecord(appendGreeting(nil), hello)
	require.NoError(t, err)
	protocoltest.Run(t, protocoltest.Golden{
		Format: &greetingFormat, File: "greeting", Version: offVersion, Features: offFeatures, Bytes: b, Want: hello,
		Decode: func(b []byte) (any, error) {
			require.NoError(t, checkMagic(b))
			if err := checkVersion(b); err != nil {
				return nil, err
			}
			r, _, err := parseRecord(b[greetingBytes:])
			return r, err
		},
	})
}

// TestRefusedFeature: the error of the side that requires a feature names it.
func TestRefusedFeature(t *testing.T) {
	l, _ := listenHere(t, Config{})
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // the test is over
	js, err := json.Marshal(Identity{})
	require.NoError(t, err)
	b, err := appendRecord(appendGreeting(nil), record{Type: typeHello, Body: js})
	require.NoError(t, err)
	b[offFeatures] = 1 << 2
	_, err = c.Write(b)
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	_, err = l.Accept(noStranger(t))
	require.ErrorIs(t, err, ErrVersion)
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	_, n, err := parseRecord(got[greetingBytes:])
	require.NoError(t, err)
	r, _, err := parseRecord(got[greetingBytes+n:])
	require.NoError(t, err)
	require.Equal(t, typeError, r.Type)
	require.Contains(t, string(r.Body), "greeting of ucx_perftest of version 3 requires feature 2")
}

func TestRecordsBothWays(t *testing.T) {
	c, s := pair(t)
	type body struct{ N int }
	require.NoError(t, c.Send("run", body{3}))
	require.NoError(t, c.Send("end", nil))
	var got body
	kind, err := s.ReceiveAny(map[string]any{"run": &got, "end": nil})
	require.NoError(t, err)
	assert.Equal(t, "run", kind)
	assert.Equal(t, body{3}, got)
	kind, err = s.ReceiveAny(map[string]any{"run": &got, "end": nil})
	require.NoError(t, err)
	assert.Equal(t, "end", kind)

	require.NoError(t, s.Send("surprise", 1))
	err = c.Receive("run", &got)
	require.ErrorIs(t, err, errRecord)
	assert.ErrorContains(t, err, `goucx 2 (pid 20 on h) sent "surprise"`)
}

func TestExchangeAndBarrier(t *testing.T) {
	c, s := pair(t)
	blob := []byte(strings.Repeat("x", 100_000)) // more than one read
	var wg sync.WaitGroup
	wg.Go(func() {
		got, err := s.Exchange([]byte("server"))
		assert.NoError(t, err)
		assert.Equal(t, blob, got)
		assert.NoError(t, s.Barrier(nil))
		assert.NoError(t, s.Barrier(func() {}))
		assert.NoError(t, s.Barrier(nil))
	})
	got, err := c.Exchange(blob)
	require.NoError(t, err)
	assert.Equal(t, "server", string(got))
	progressed := 0
	require.NoError(t, c.Barrier(func() { progressed++ }))
	require.NoError(t, c.Barrier(nil))
	require.NoError(t, c.Barrier(func() { progressed++ }))
	wg.Wait()
}

// A barrier progresses as long as the other side is not there.
func TestBarrierProgresses(t *testing.T) {
	c, s := pair(t)
	calls := 0
	done := make(chan error, 1)
	require.NoError(t, c.Barrier(func() {
		if calls++; calls == 100 {
			go func() { done <- s.Barrier(nil) }()
		}
	}))
	require.NoError(t, <-done)
	assert.GreaterOrEqual(t, calls, 100)
}

func TestPeerEnds(t *testing.T) {
	t.Run("in order, while waiting", func(t *testing.T) {
		c, s := pair(t)
		require.NoError(t, s.Close())
		err := c.Receive("run", nil)
		require.ErrorIs(t, err, ErrPeerGone)
		assert.ErrorContains(t, err, "goucx 2 (pid 20 on h)")
	})
	t.Run("while polled", func(t *testing.T) {
		c, s := pair(t)
		require.NoError(t, c.Err())
		require.NoError(t, s.Close())
		require.Eventually(t, func() bool { return errors.Is(c.Err(), ErrPeerGone) }, time.Minute, time.Millisecond)
		require.ErrorIs(t, c.Barrier(nil), ErrPeerGone)
	})
	t.Run("in the middle of a record", func(t *testing.T) {
		c, s := pair(t)
		_, err := s.c.Write([]byte("\x09\x00\x00\x00{"))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		err = c.Receive("run", nil)
		require.ErrorIs(t, err, ErrPeerGone)
		assert.ErrorContains(t, err, "middle of a record")
	})
	t.Run("with its reason", func(t *testing.T) {
		c, s := pair(t)
		s.Fail(errors.New("no memory"))
		require.NoError(t, s.Close())
		err := c.Barrier(func() {})
		remote, ok := errors.AsType[*RemoteError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, "no memory", remote.Text)
		assert.ErrorContains(t, c.Err(), "no memory")
	})
	t.Run("barrier out of step", func(t *testing.T) {
		c, s := pair(t)
		require.NoError(t, s.Send("run", 1))
		require.ErrorIs(t, c.Barrier(func() {}), errRecord)
	})
}

// What one side said last is not lost when it closes with bytes unread.
func TestLastWordsArrive(t *testing.T) {
	for range 50 {
		c, s := pair(t)
		require.NoError(t, c.Send("run", strings.Repeat("unread", 1000)))
		s.Fail(errors.New("last words"))
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		require.ErrorContains(t, c.Receive("address", nil), "last words")
		require.NoError(t, c.Close())
		<-closed
	}
}

// ucxHello is how UCX 1.13's client begins (tag_lat: protocol layer, tag).
const ucxHello = "0100000007000000000000000000000001000000010000000300000000000000"

// TestServerRefuses: UCX's tool and another version end the server; whatever else
// connects is reported, and the client that comes after it is served.
func TestServerRefuses(t *testing.T) {
	raw, err := hex.DecodeString(ucxHello)
	require.NoError(t, err)
	version := appendGreeting(nil)
	version[offVersion] = 7
	feature := appendGreeting(nil)
	feature[offFeatures] = 1 << 2
	for name, tc := range map[string]struct {
		sent []byte
		want error
		text string
	}{
		"UCX's client":      {raw, ErrUCX, "UCX's own ucx_perftest"},
		"UCT test of UCX":   {make([]byte, 264), ErrUCX, "run the same tool"},
		"web browser":       {[]byte("GET / HTTP/1.1\r\n\r\n"), ErrForeign, `"GET / HT"`},
		"other version":     {version, ErrVersion, "greeting of ucx_perftest has version 7, this program knows version 3"},
		"required feature":  {feature, ErrVersion, "greeting of ucx_perftest of version 3 requires feature 2, which this program (version 3) does not know"},
		"hang-up":           {[]byte("gouc"), ErrPeerGone, "during the greeting"},
		"hang-up at once":   {nil, ErrPeerGone, "during the greeting"},
		"garbage for hello": {append(appendGreeting(nil), "\x03\x00\x00\x00abc"...), errRecord, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			l, port := listenHere(t, Config{})
			var all sync.WaitGroup
			defer all.Wait()
			all.Go(func() {
				c, err := net.Dial("tcp", l.Addr().String())
				if assert.NoError(t, err) {
					_, err = c.Write(tc.sent)
					assert.NoError(t, err)
					_ = c.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, c)
					_ = c.Close()
				}
			})
			ends := errors.Is(tc.want, ErrUCX) || errors.Is(tc.want, ErrVersion)
			var refused error
			s, err := l.Accept(func(err error) {
				refused = err
				all.Go(func() { // the client comes after the stranger
					if c, err := Dial(t.Context(), "127.0.0.1", Config{Port: port, Timeout: time.Minute}); assert.NoError(t, err) {
						_ = c.Close()
					}
				})
			})
			if ends {
				refused = err
			} else if assert.NoError(t, err) {
				_ = s.Close()
			}
			require.ErrorIs(t, refused, tc.want)
			assert.ErrorContains(t, refused, tc.text)
			assert.ErrorContains(t, refused, "client at 127.0.0.1:")
			if ends {
				_, err = net.Dial("tcp", l.Addr().String())
				require.ErrorContains(t, err, "refused", "the port is closed")
			}
		})
	}
}

// TestAcceptBesideSilence: connections that say nothing, more than are greeted at
// once, do not hold the client up for longer than a greeting may take.
func TestAcceptBesideSilence(t *testing.T) {
	for name, tc := range map[string]struct {
		silent int
		greet  time.Duration
	}{
		"a few":                       {3, time.Hour},
		"more than are greeted":       {maxGreetings + 4, 50 * time.Millisecond},
		"none but those that hang up": {0, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			l, port := listenHere(t, Config{Greet: tc.greet})
			for range tc.silent {
				c, err := net.Dial("tcp", l.Addr().String())
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
			}
			for range 3 {
				c, err := net.Dial("tcp", l.Addr().String())
				require.NoError(t, err)
				require.NoError(t, c.Close())
			}
			accepted := make(chan error, 1)
			go func() {
				s, err := l.Accept(func(error) {})
				if err == nil {
					err = s.Close()
				}
				accepted <- err
			}()
			c, err := Dial(t.Context(), "127.0.0.1", Config{Port: port, Timeout: time.Minute, Greet: time.Minute})
			require.NoError(t, err)
			require.NoError(t, c.Close())
			require.NoError(t, <-accepted)
		})
	}
}

func TestClientMeetsSilence(t *testing.T) {
	l, port := listenHere(t, Config{})
	got := make(chan []byte, 1)
	go func() { // as UCX's server: waits for its own parameter block
		c, err := l.l.Accept()
		if assert.NoError(t, err) {
			b, _ := io.ReadAll(c)
			_ = c.Close()
			got <- b
		}
	}()
	_, err := Dial(t.Context(), "127.0.0.1", Config{Port: port, Greet: 20 * time.Millisecond})
	require.ErrorIs(t, err, ErrUCX)
	assert.ErrorContains(t, err, "said nothing for 20ms")
	// UCX reads 264 bytes of parameters before it acts on any of them.
	assert.Less(t, len(<-got), 264)
}

func TestServerMeetsSilence(t *testing.T) {
	l, port := listenHere(t, Config{Greet: 20 * time.Millisecond})
	quiet, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer func() { _ = quiet.Close() }()
	silent := make(chan error, 1)
	accepted := make(chan error, 1)
	go func() {
		s, err := l.Accept(func(err error) { silent <- err })
		if err == nil {
			err = s.Close()
		}
		accepted <- err
	}()
	require.ErrorIs(t, <-silent, ErrForeign)
	c, err := Dial(t.Context(), "127.0.0.1", Config{Port: port, Timeout: time.Minute, Greet: time.Minute})
	require.NoError(t, err)
	require.NoError(t, <-accepted)
	require.NoError(t, c.Close())
}

// TestEndRun: whichever side fails, and whatever the run leaves on the connection,
// both know how it ended and the next run works.
func TestEndRun(t *testing.T) {
	one, other := errors.New("one failed"), errors.New("other failed")
	for name, tc := range map[string]struct {
		client, server         error // of the run
		clientWant, serverWant string
	}{
		"both end well":    {},
		"the client fails": {client: one, clientWant: "one failed", serverWant: "goucx 1 (pid 10 on g), reports: one failed"},
		"the server fails": {server: other, clientWant: "goucx 2 (pid 20 on h), reports: other failed", serverWant: "other failed"},
		"both fail":        {client: one, server: other, clientWant: "one failed", serverWant: "other failed"},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := pair(t)
			require.NoError(t, c.send(record{Type: typeBarrier, Seq: 1})) // a barrier that the server never reaches
			require.NoError(t, s.Send(typeAddress, []byte("unread")))
			end := func(c *Conn, runErr error, want string) {
				failure, broken := c.EndRun(runErr)
				assert.NoError(t, broken)
				if want == "" {
					assert.NoError(t, failure)
				} else {
					assert.ErrorContains(t, failure, want)
				}
				assert.NoError(t, c.Err(), "nothing is left of the run")
				assert.NoError(t, c.Barrier(nil))
			}
			var wg sync.WaitGroup
			wg.Go(func() { end(s, tc.server, tc.serverWant) })
			end(c, tc.client, tc.clientWant)
			wg.Wait()
		})
	}
	t.Run("the other side dies", func(t *testing.T) {
		c, s := pair(t)
		require.NoError(t, s.Close())
		failure, broken := c.EndRun(one)
		require.ErrorIs(t, failure, one)
		require.ErrorIs(t, broken, ErrPeerGone)
	})
	t.Run("the other side is stopped", func(t *testing.T) {
		c, _ := pair(t)
		c.settle = 20 * time.Millisecond
		failure, broken := c.EndRun(one)
		require.ErrorIs(t, failure, one)
		require.ErrorIs(t, broken, ErrPeerGone)
		assert.ErrorContains(t, broken, "goucx 2 (pid 20 on h) has not ended the run within 20ms")
	})
	t.Run("a remote failure is not sent back", func(t *testing.T) {
		c, s := pair(t)
		var wg sync.WaitGroup
		wg.Go(func() {
			failure, broken := s.EndRun(other)
			assert.ErrorIs(t, failure, other)
			assert.NoError(t, broken)
		})
		err := c.Barrier(func() {})
		require.ErrorContains(t, err, "other failed")
		failure, broken := c.EndRun(err)
		require.ErrorContains(t, failure, "reports: other failed")
		require.NoError(t, broken)
		wg.Wait()
	})
	t.Run("a record out of turn", func(t *testing.T) {
		c, s := pair(t)
		require.NoError(t, s.Send("run", 1))
		_, broken := c.EndRun(nil)
		require.ErrorIs(t, broken, errRecord)
	})
}

func TestConnectErrors(t *testing.T) {
	t.Run("no server comes", func(t *testing.T) {
		l, port := listenHere(t, Config{})
		require.NoError(t, l.Close())
		_, err := Dial(t.Context(), "127.0.0.1", Config{Port: port, Timeout: 80 * time.Millisecond})
		assert.ErrorContains(t, err, "no server came within 80ms")
		assert.ErrorContains(t, err, "connection refused")
	})
	t.Run("unknown host", func(t *testing.T) {
		_, err := Dial(t.Context(), "no.such.host.invalid", Config{Timeout: time.Second})
		assert.ErrorContains(t, err, "no.such.host.invalid")
	})
	t.Run("address of another family", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := Dial(ctx, "127.0.0.1", Config{IPv6: true, Timeout: time.Hour})
		assert.ErrorContains(t, err, "no suitable address")
		require.NoError(t, ctx.Err())
	})
	t.Run("port in use", func(t *testing.T) {
		_, port := listenHere(t, Config{})
		_, err := listen(Config{}, &net.TCPAddr{IP: loopback.IP, Port: port})
		assert.ErrorContains(t, err, "address already in use")
		assert.ErrorContains(t, err, "listen on port ")
	})
	t.Run("second client is refused", func(t *testing.T) {
		_, s := pair(t)
		port := s.c.LocalAddr().(*net.TCPAddr).Port
		_, err := Dial(t.Context(), "127.0.0.1", Config{Port: port, Timeout: 500 * time.Millisecond})
		assert.ErrorContains(t, err, "it serves another client, "+s.Peer().String())
	})
	t.Run("a server that comes late", func(t *testing.T) {
		l, port := listenHere(t, Config{})
		require.NoError(t, l.Close())
		accepted := make(chan error, 1)
		time.AfterFunc(3*retryEvery, func() {
			l, err := listen(Config{}, &net.TCPAddr{IP: loopback.IP, Port: port})
			if err == nil {
				var c *Conn
				if c, err = l.Accept(func(error) {}); err == nil {
					err = c.Close()
				}
			}
			accepted <- err
		})
		c, err := Dial(t.Context(), "127.0.0.1", Config{Port: port, Timeout: time.Minute})
		require.NoError(t, <-accepted)
		require.NoError(t, err)
		_ = c.Close()
	})
}

func TestLoop(t *testing.T) {
	var l Loop
	b, err := l.Exchange([]byte("me"))
	require.NoError(t, err)
	assert.Equal(t, "me", string(b))
	require.NoError(t, l.Barrier(nil))
	require.NoError(t, l.Err())
	assert.Equal(t, 1, l.Size())
	assert.Zero(t, l.Index())
}
