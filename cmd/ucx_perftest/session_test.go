package main

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/perf/rte"
	"github.com/goucx/goucx/ucp"
)

// A server serves its client, whatever connects before: a connection that says
// nothing, one that hangs up, one that speaks another protocol.
func TestServerOutlivesStrangers(t *testing.T) {
	port := suitetest.FreePort(t)
	s := start(t, "-p", port)
	s.Says("Waiting for connection")
	dial := func() net.Conn {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	dial() // says nothing, and stays
	require.NoError(t, dial().Close())
	browser := dial()
	_, err := browser.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	require.NoError(t, err)
	s.Tells(`it begins with "GET / HT"; still waiting`)
	s.Tells("hung up during the greeting")
	c := start(t, "127.0.0.1", "-p", port, "-q", "-t", "tag_lat", "-n", "100")
	require.Zero(t, c.End(patience), "client: %s\nserver: %s", &c.Err, &s.Err)
	require.Zero(t, s.End(patience), "server: %s", &s.Err)
	assert.Regexp(t, finalRow, c.Out.String())
}

// A line of a batch that fails is reported, the next one runs, and the exit code is 1.
// The first line that fails does so on both sides, the second one on each alone.
func TestBatchGoesOnAfterAFailure(t *testing.T) {
	lines := file(t, "lines", "one -t tag_lat\nbad -t am_lat -x nonsense\ntwo -t ucp_get\nlong -t am_lat -x shm -s 100000\nthree -t tag_bw\n")
	reasons := []string{
		`bad: set up am_lat: unknown transport "nonsense"`,
		"long: set up am_lat: message size (100000) is larger than max supported",
		"2 of 5 runs failed",
	}
	rows := `one,100(,[0-9.]+){7}\ntwo,100(,[0-9.]+){7}\nthree,100(,[0-9.]+){7}\n$`
	args := []string{"-q", "-v", "-f", "-n", "100", "-b", lines}
	t.Run("loopback", func(t *testing.T) {
		out, errs, err := command(append(args, "-l")...)
		require.ErrorContains(t, err, reasons[2])
		assert.Equal(t, 1, exitCode(err))
		for _, reason := range reasons[:2] {
			assert.Equal(t, 1, strings.Count(errs, "ucx_perftest: "+reason), errs)
		}
		assert.Regexp(t, rows, out)
	})
	t.Run("two processes", func(t *testing.T) {
		port := suitetest.FreePort(t)
		s := start(t, "-p", port, "-b", lines)
		c := start(t, append([]string{"127.0.0.1", "-p", port}, args...)...)
		assert.Equal(t, 1, c.End(patience), "%s", &c.Err)
		assert.Equal(t, 1, s.End(patience), "%s", &s.Err)
		assert.Regexp(t, rows, c.Out.String())
		for _, reason := range reasons {
			assert.Contains(t, c.Err.String(), "ucx_perftest: "+reason)
			assert.Contains(t, s.Err.String(), "ucx_perftest: "+reason)
		}
	})
	t.Run("only the server fails", func(t *testing.T) {
		port := suitetest.FreePort(t)
		t.Setenv("UCX_TLS", "self")
		s := start(t, "-p", port)
		t.Setenv("UCX_TLS", "self,shm")
		c := start(t, append([]string{"127.0.0.1", "-p", port, "-b", file(t, "l", "a -t tag_lat\nb -t am_lat -x shm\nc -t tag_bw\nd -t put_bw -x shm\n")}, args[:5]...)...)
		assert.Equal(t, 1, c.End(patience), "%s", &c.Err)
		assert.Equal(t, 1, s.End(patience), "%s", &s.Err)
		assert.Regexp(t, `\nb,100(,[0-9.]+){7}\nd,100(,[0-9.]+){7}\n$`, c.Out.String(), "%s", &c.Err)
		assert.Contains(t, c.Err.String(), "ucx_perftest: a: ")
		assert.Contains(t, c.Err.String(), "ucx_perftest: c: ")
		assert.Contains(t, c.Err.String(), "ucx_perftest: 2 of 4 runs failed")
		assert.Contains(t, s.Err.String(), "ucx_perftest: 2 of 4 runs failed")
	})
	t.Run("the other side dies", func(t *testing.T) {
		port := suitetest.FreePort(t)
		s := start(t, "-p", port)
		c := start(t, "127.0.0.1", "-q", "-p", port, "-b", file(t, "l", "a -t tag_lat -n 0\nb -t tag_bw\n"))
		c.Says("[thread 0]")
		require.NoError(t, s.Cmd.Process.Kill())
		assert.Equal(t, 1, c.End(patience))
		assert.Contains(t, c.Err.String(), "ucx_perftest: a: ")
		assert.Contains(t, c.Err.String(), "1 of 2 runs failed\n1 of 2 runs were not begun")
	})
}

// Both sides name the transport that ran, in the box, in JSON and in the log.
func TestTransportThatRan(t *testing.T) {
	for tl, want := range map[string]string{"shm": "shm/memory", "rc,ud": "rc/"} {
		t.Run(tl, func(t *testing.T) {
			t.Setenv("UCX_TLS", tl)
			t.Setenv("UCX_LOG_LEVEL", "info")
			for test, log := range map[string]string{"tag_lat": "tag", "ucp_am_lat": "am", "ucp_put_lat": "rma", "ucp_fadd": "amo"} {
				port := suitetest.FreePort(t)
				s := start(t, "-p", port)
				c := start(t, "127.0.0.1", "-q", "-p", port, "-t", test, "-n", "100", "-f")
				for _, p := range []*suitetest.Command{c, s} {
					assert.Equal(t, 0, p.End(patience), "%s", &p.Err)
					assert.Contains(t, p.Out.String(), "| Transport:    "+want)
					assert.Regexp(t, `INFO\s+ep_cfg\[0\]: .*`+log+`\(`+want, p.Err.String())
					assert.Equal(t, 1, strings.Count(p.Err.String(), "ep_cfg"), "%s", &p.Err)
				}
			}
			out, _, err := command("-l", "-q", "-t", "tag_lat", "-n", "100", "--json")
			require.NoError(t, err)
			assert.Regexp(t, `"transport":"`+want, out)
		})
	}
}

// A run that cannot connect has no transport, and the others of the batch have theirs.
func TestTransportsOfABatch(t *testing.T) {
	t.Setenv("UCX_TLS", "self")
	lines := file(t, "l", "a -t tag_lat\nb -t am_lat -x shm\nc -t am_lat -x warp\nd -t tag_bw\n")
	out, errs, err := command("-l", "-q", "-n", "100", "-b", lines)
	require.Error(t, err)
	assert.Contains(t, errs, `c: set up am_lat: unknown transport "warp"`)
	at := 0
	for _, want := range []string{"Transport:    self/memory0", "Stage", "+a-", "Final:", "+b-", "Transport:    shm/memory", "Final:", "+d-", "Transport:    self/memory0", "Final:"} {
		n := strings.Index(out[at:], want)
		require.GreaterOrEqual(t, n, 0, "%s in\n%s", want, out)
		at += n
	}
	assert.Equal(t, 3, strings.Count(out, "Transport:"))
}

// A side whose peer closes its worker before it reports why shows that reason, not the closed worker.
func TestReasonOfTheOtherSide(t *testing.T) {
	port, err := strconv.Atoi(suitetest.FreePort(t))
	require.NoError(t, err)
	config := rte.Config{Port: port}
	l, err := rte.Listen(config)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	accepted := make(chan *rte.Conn, 1)
	go func() {
		c, _ := l.Accept(func(error) {})
		accepted <- c
	}()
	client, err := rte.Dial(t.Context(), "127.0.0.1", config)
	require.NoError(t, err)
	server := <-accepted
	require.NotNil(t, server)
	own := errors.New("set up tag_lat: no device")
	require.Equal(t, own, cause(client, own), "an error of this side alone is its own")
	time.AfterFunc(50*time.Millisecond, func() { server.Fail(errors.New("it requires what this version does not have")) })
	require.ErrorContains(t, cause(client, ucp.ErrPeerClosed), "reports: it requires what this version does not have")
	require.Equal(t, own, cause(client, own), "an error of this side alone is its own")
	require.NoError(t, client.Close())
	require.Equal(t, ucp.ErrPeerClosed, cause(server, ucp.ErrPeerClosed), "of a dead side no reason arrives")
	require.NoError(t, server.Close())
}
