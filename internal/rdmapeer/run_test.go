package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// asCommand in the environment makes the test binary the command.
const asCommand = "RDMAPEER_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// planOf parses a command line of a test, whose devices are on the loopback interface.
func planOf(t *testing.T, line string) *plan {
	t.Helper()
	args := []string{"-limit", "30s", "-udp-port", "0"}
	if !strings.Contains(line, "-addr") {
		args = append(args, "-addr", "127.0.0.1")
	}
	p, err := parse(append(args, strings.Fields(line)...), io.Discard)
	require.NoError(t, err)
	return p
}

// pair runs a client and a server and returns what they return.
func pair(t *testing.T, client, server string) (c, s *result, cErr, sErr error) {
	t.Helper()
	sp, cp := planOf(t, server), planOf(t, client+" localhost")
	sp.port = 0
	port, ended := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(ended)
		s, sErr = execute(sp, func(a net.Addr) { port <- a.(*net.TCPAddr).Port })
	}()
	select {
	case cp.port = <-port:
		c, cErr = execute(cp, nil)
	case <-ended:
	}
	<-ended
	return c, s, cErr, sErr
}

// verified returns how many messages of a run must have been verified at least by client and
// server.
func verified(p *plan) (client, server int) {
	n := p.iters * p.qps
	switch {
	case p.test.pattern == pingpong:
		return p.iters, p.iters
	case p.test.verb == verbSend && p.test.pattern == latency, p.test.verb == verbWrite && p.test.pattern == latency:
		return n, n
	case p.test.verb == verbSend:
		client, server = 0, n
	case p.test.verb == verbWrite:
		client, server = 0, p.qps // the last message of each place
	case p.test.verb == verbRead:
		client, server = n, 0
	default:
		client, server = n, n
	}
	if p.both {
		client, server = max(client, server), max(client, server)
	}
	return client, server
}

// TestRuns runs all tests with client and server in one process. Each message is verified.
func TestRuns(t *testing.T) {
	lines := []string{
		"-n 100 ibv_rc_pingpong",
		"-n 20 -s 100000 -m 4096 ibv_rc_pingpong",
		"-n 100 -s 1000 ibv_ud_pingpong",
		"-n 200 ibv_srq_pingpong",
		"-n 100 ib_send_lat",
		"-n 50 -c UD -s 1000 ib_send_lat",
		"-n 100 -I 32 -s 32 ib_send_lat",
		"-n 100 -s 1 ib_send_bw",
		"-n 300 -s 777 -b ib_send_bw",
		"-n 100 -q 4 -b -use-srq ib_send_bw",
		"-n 100 -s 1024 -c UD -t 16 ib_send_bw",
		"-n 3 -s 4194304 ib_send_bw",
		"-n 50 ibv_uc_pingpong",
		"-n 50 -c UC -s 5000 -m 1024 ib_send_lat",
		"-n 50 -c UC -s 5000 -t 4 ib_write_bw",
		"-n 50 -c UC -s 500 ib_write_lat",
		"-n 100 ib_write_lat",
		"-n 300 -s 777 -m 256 ib_write_lat",
		"-n 200 -q 4 -b ib_write_bw",
		"-n 200 -s 100 ib_write_bw",
		"-n 100 ib_read_lat",
		"-n 100 -q 4 -b ib_read_bw",
		"-n 200 -s 1 ib_read_bw",
		"-n 100 ib_atomic_lat",
		"-n 200 -q 4 -b ib_atomic_bw",
		"-n 200 -A CMP_AND_SWAP ib_atomic_bw",
		"-n 20 -e ib_send_lat",
		"-n 20 -e ib_write_bw",
		"-n 20 -e ib_read_bw",
	}
	if os.Getenv("GOUCX_TEST_LONG") == "1" {
		lines = longRuns()
	}
	for _, line := range lines {
		t.Run(line, func(t *testing.T) { checkPair(t, line) })
	}
}

// longRuns returns every test with every size and option, the MTUs in turns. Messages of an unreliable
// connection stay within the buffer of a socket: a datagram beyond it is lost, and a message with it.
func longRuns() (lines []string) {
	for i := range tests {
		te := &tests[i]
		for j, size := range []int{1, 8, 64, 777, 1024, 2048, 2049, 65536, 1 << 20, 4 << 20} {
			for k, more := range []string{"", "-b -q 4", "-e", "-use-srq", "-I 64", "-c UD", "-c UC -t 4"} {
				m := []int{256, 1024, 4096}[(i+j+k)%3]
				line := fmt.Sprintf("-n %d -s %d -m %d %s %s", max(3, min(200, 4<<20/size)), size, m, more, te.name)
				p, err := parse(strings.Fields(line), io.Discard)
				if err == nil && !(p.typ == verbs.UD && size > m) && !(p.typ == verbs.UC && size > 1<<16) {
					lines = append(lines, line)
				}
			}
		}
	}
	return lines
}

// checkPair runs a pair with the same options.
func checkPair(t *testing.T, line string) {
	c, s, cErr, sErr := pair(t, line, line)
	require.NoError(t, cErr, "client; the server: %v", sErr)
	require.NoError(t, sErr, "server")
	cWant, sWant := verified(c.plan)
	assert.GreaterOrEqual(t, c.verified, cWant, "%v", c)
	assert.GreaterOrEqual(t, s.verified, sWant, "%v", s)
}

// TestIPv6: a pair over IPv6.
func TestIPv6(t *testing.T) {
	for _, line := range []string{"-addr ::1 -n 20 ib_write_bw", "-addr ::1 -n 20 -c UD -s 100 ib_send_lat", "-addr ::1 -n 20 ibv_rc_pingpong"} {
		t.Run(line, func(t *testing.T) { checkPair(t, line) })
	}
}

// TestLoss: a connection survives the loss of packets.
func TestLoss(t *testing.T) {
	checkPair(t, "-n 100 -u 14 -s 20000 -m 1024 -loss 0.01 -b ib_send_bw")
	checkPair(t, "-n 100 -u 14 -s 20000 -m 1024 -loss 0.01 -b ib_read_bw")
}

// TestDifferentOptions: what the sides disagree on is an error that names it.
func TestDifferentOptions(t *testing.T) {
	for _, tc := range []struct{ client, server, want string }{
		{"-n 10 -s 100 ib_send_bw", "-n 10 -s 200 ib_send_bw", "100 bytes, want 200"},
		{"-n 10 -s 100 ib_write_bw", "-n 10 -s 200 ib_write_bw", "report: size 100, want 200"},
		{"-n 10 -s 100 ib_write_bw", "-n 20 -s 100 ib_write_bw", "report: iterations 10, want 20"},
		{"-n 10 -addr ::1 ib_write_bw", "-n 10 ib_write_bw", "one IP version"},
	} {
		_, _, cErr, sErr := pair(t, tc.client, tc.server)
		require.Error(t, sErr)
		require.Error(t, cErr)
		assert.ErrorContains(t, sErr, tc.want)
	}
}

// TestPeerCloses: a peer that closes its connection during a transfer ends the run.
func TestPeerCloses(t *testing.T) {
	for _, program := range []string{"ib_send_lat", "-b ib_write_bw", "-e ib_send_bw"} {
		start := time.Now()
		_, _, cErr, sErr := pair(t, "-limit 500ms -n 100000000 "+program, "-n 100000000 "+program)
		assert.ErrorIs(t, cErr, errLimit, program)
		assert.ErrorIs(t, sErr, errClosed, program)
		assert.Less(t, time.Since(start), 10*time.Second, program)
	}
}

// TestTwoProcesses runs client and server as commands.
func TestTwoProcesses(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "localhost:0") // finds a free port
	require.NoError(t, err)
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	for _, program := range []string{"ibv_rc_pingpong", "ib_write_lat", "ib_send_bw"} {
		args := []string{"-addr", "127.0.0.1", "-udp-port", "0", "-p", fmt.Sprint(port), "-limit", "30s", "-n", "50", "-v", program}
		var out [2]bytes.Buffer
		var cmds [2]*exec.Cmd
		for i, more := range [][]string{nil, {"127.0.0.1"}} {
			cmds[i] = exec.Command(exe, append(args[:len(args):len(args)], more...)...)
			cmds[i].Env = append(os.Environ(), asCommand+"=1")
			cmds[i].Stdout, cmds[i].Stderr = &out[i], &out[i]
			require.NoError(t, cmds[i].Start())
		}
		for i, cmd := range cmds {
			assert.NoError(t, cmd.Wait(), "%s", &out[i])
			assert.Contains(t, out[i].String(), program)
			assert.Contains(t, out[i].String(), "verified")
			assert.Contains(t, out[i].String(), "\ndevice.tx_packets ")
		}
	}
}

// TestUsage: options that do not fit together are named.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"":                               "program",
		"ib_none":                        "program",
		"-b ib_send_lat":                 "-b",
		"-q 2 ib_send_lat":               "-q",
		"-c UD ib_write_bw":              "-c UD",
		"-c UC ib_read_bw":               "-c UC",
		"-c XRC ib_read_bw":              "-c XRC",
		"-c UD ibv_rc_pingpong":          "-c",
		"-s 4 ib_atomic_bw":              "-s 4",
		"-s 0 ibv_rc_pingpong":           "-s 0",
		"-s 9000 ibv_ud_pingpong":        "-s 9000",
		"-m 1000 ib_send_bw":             "-m 1000",
		"-A ADD ib_atomic_bw":            "-A ADD",
		"-use-srq ib_read_bw":            "-use-srq",
		"-p 0 ib_send_bw":                "-p 0",
		"-n -1 ib_send_bw":               "-n -1",
		"-u 32 ib_send_bw":               "-u 32",
		"-loss 1 ib_send_bw":             "-loss 1",
		"-addr x ib_send_bw":             "-addr",
		"-limit 0s ib_send_bw":           "-limit",
		"ib_send_bw localhost more":      "more",
		"-provider none -n 5 ib_send_bw": "-provider none",
	} {
		var out bytes.Buffer
		err := command(strings.Fields(line), &out, io.Discard)
		require.Error(t, err, line)
		assert.ErrorContains(t, err, want, line)
		assert.Empty(t, out.String())
	}
}
