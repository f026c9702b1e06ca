package main

import (
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// good is what a client of perftest sends until it is connected.
var good = []string{goldenVersion, "\x00\x00\x10\x00", "\x00\x00\x00\x40", "3\x00", strings.NewReplacer("0000:0080", "8123:0080", "0a:4d:00:03", "7f:00:00:01").Replace(goldenKey)}

// script is what a hostile client sends, after which it closes the connection or, with stay, is
// silent.
type script struct {
	messages []string
	stay     bool
}

// attack runs a server against a script and returns its error.
func attack(t *testing.T, line string, s script) error {
	t.Helper()
	p := s.plan(t, line)
	p.port = 0
	port := make(chan int, 1)
	failed := inBackground(func() error {
		_, err := execute(p, func(a net.Addr) { port <- a.(*net.TCPAddr).Port })
		return err
	})
	conn, err := net.Dial("tcp", net.JoinHostPort("localhost", strconv.Itoa(<-port)))
	require.NoError(t, err)
	defer conn.Close()
	s.play(conn)
	return outcome(t, failed)
}

// lure runs a client against a script and returns its error.
func lure(t *testing.T, line string, s script) error {
	t.Helper()
	ln, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer ln.Close()
	p := s.plan(t, line+" localhost")
	p.port = ln.Addr().(*net.TCPAddr).Port
	failed := inBackground(func() error { _, err := execute(p, nil); return err })
	conn, err := ln.Accept()
	require.NoError(t, err)
	defer conn.Close()
	s.play(conn)
	return outcome(t, failed)
}

// plan returns the plan of the attacked side, whose limit is short if it is sure to pass.
func (s script) plan(t *testing.T, line string) *plan {
	t.Helper()
	p := planOf(t, line)
	if s.stay {
		p.limit = 300 * time.Millisecond
	}
	return p
}

// play sends the messages and ignores what arrives.
func (s script) play(conn net.Conn) {
	for _, m := range s.messages {
		if _, err := conn.Write([]byte(m)); err != nil {
			break // it has noticed already
		}
	}
	if !s.stay {
		conn.(*net.TCPConn).CloseWrite()
	}
	go io.Copy(io.Discard, conn)
}

func inBackground(f func() error) chan error {
	failed := make(chan error, 1)
	go func() { failed <- f() }()
	return failed
}

// outcome returns the error of the attacked side.
func outcome(t *testing.T, failed chan error) error {
	t.Helper()
	select {
	case err := <-failed:
		return err
	case <-time.After(20 * time.Second):
		require.Fail(t, "it hangs")
		return nil
	}
}

// TestHostileClients: a handshake that is malformed, cut, or not continued ends the run with an
// error that names the message or its field.
func TestHostileClients(t *testing.T) {
	with := func(i int, m string) script {
		return script{messages: append(append([]string{}, good[:i]...), m), stay: true}
	}
	names := []string{"version", "size of the cycle buffer", "size of a cache line", "MTU", "address of queue pair 0"}
	for i, name := range names {
		for _, line := range []string{"-n 10 ib_send_bw", "-n 10 ib_write_bw"} {
			assert.ErrorIs(t, attack(t, line, script{messages: good[:i]}), errClosed, name)
			cut := script{messages: append(append([]string{}, good[:i]...), good[i][:1])}
			err := attack(t, line, cut)
			assert.ErrorIs(t, err, errClosed, name)
			assert.ErrorContains(t, err, name)
		}
		err := attack(t, "-n 10 ib_send_bw", script{messages: good[:i], stay: true})
		assert.ErrorIs(t, err, errLimit, name)
		assert.ErrorContains(t, err, name)
	}
	for _, tc := range []struct {
		s    script
		want string
	}{
		{with(0, "GET / HTTP/1.1\r\n"), "version"},
		{with(0, "5.60"+strings.Repeat("\x00", 12)), "version 5.60"},
		{with(1, "\x00\x00\x00\x00"), "cycle buffer 0"},
		{with(1, "\xff\xff\xff\xff"), "cycle buffer 4294967295"},
		{with(2, "\x7f\x00\x00\x00"), "cache line"},
		{with(3, "9\x00"), "MTU"},
		{with(4, strings.Replace(good[4], "00001b", "00001g", 1)), "QPN"},
	} {
		err := attack(t, "-n 10 ib_send_bw", tc.s)
		assert.ErrorContains(t, err, tc.want)
	}
	zeroReads := strings.Replace(good[4], ":0080:", ":0000:", 1)
	assert.ErrorContains(t, attack(t, "-n 10 ib_read_bw", with(4, zeroReads)), "out_reads 0")
}

// TestHostileServers is TestHostileClients for the other role.
func TestHostileServers(t *testing.T) {
	names := []string{"version", "size of the cycle buffer", "size of a cache line", "MTU", "address of queue pair 0"}
	for i, name := range names {
		err := lure(t, "-n 10 ib_send_bw", script{messages: append(append([]string{}, good[:i]...), good[i][:1])})
		assert.ErrorIs(t, err, errClosed, name)
		assert.ErrorContains(t, err, name)
		wrong := append(append([]string{}, good[:i]...), strings.Repeat("\xff", len(good[i])))
		err = lure(t, "-n 10 ib_send_bw", script{messages: wrong})
		assert.ErrorIs(t, err, errMessage, name)
	}
	assert.ErrorIs(t, lure(t, "-n 10 ib_send_bw", script{stay: true}), errLimit)
	wrong := strings.Replace(goldenPingpong, "0000:", "000z:", 1)
	assert.ErrorContains(t, lure(t, "-n 10 ibv_rc_pingpong", script{messages: []string{wrong}}), "LID")
	assert.ErrorIs(t, lure(t, "-n 10 ibv_rc_pingpong", script{}), errClosed)
}

// TestFlood: what a peer sends ahead is bounded.
func TestFlood(t *testing.T) {
	local, remote := net.Pipe()
	defer local.Close()
	c := newControl(local, false, ucs.Now().Add(10*time.Second))
	go io.CopyN(remote, endless{}, 10*maxPending)
	for c.ended() == nil {
		require.NoError(t, c.wait())
	}
	assert.ErrorContains(t, c.ended(), "the protocol does not have")
	assert.ErrorIs(t, c.ended(), errMessage)
	assert.Less(t, len(c.pending), 2*maxPending)
	remote.Close()
}

// endless is an endless sequence of zeros.
type endless struct{}

func (endless) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestHostilePingpong is TestHostileClients for ibv_*_pingpong.
func TestHostilePingpong(t *testing.T) {
	address := strings.NewReplacer("0000:000012", "8123:000012", "0a4d0001", "7f000001").Replace(goldenPingpong)
	for _, tc := range []struct {
		s    script
		want string
		is   error
	}{
		{script{}, "address", errClosed},
		{script{messages: []string{address[:20]}}, "address", errClosed},
		{script{messages: []string{address[:20]}, stay: true}, "address", errLimit},
		{script{messages: []string{strings.Replace(address, ":", "/", 1)}}, "LID", errMessage},
		{script{messages: []string{address}}, "end", errClosed},
		{script{messages: []string{address, done}, stay: true}, "after 0 messages", errLimit},
	} {
		err := attack(t, "-n 10 ibv_rc_pingpong", tc.s)
		assert.ErrorIs(t, err, tc.is)
		assert.ErrorContains(t, err, tc.want)
	}
}

// TestNoServer: a client whose server never comes ends at its limit.
func TestNoServer(t *testing.T) {
	ln, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	_, err = execute(planOf(t, "-limit 200ms -p "+strconv.Itoa(port)+" ib_send_bw localhost"), nil)
	assert.ErrorIs(t, err, errLimit)
}

// TestNoClient: a server whose client never comes ends at its limit.
func TestNoClient(t *testing.T) {
	p := planOf(t, "-limit 200ms ib_send_bw")
	p.port = 0
	_, err := execute(p, nil)
	assert.ErrorIs(t, err, errLimit)
}
