package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// An interrupted measurement prints the final row of what ran and ends by the signal.
func TestInterruptedLoopback(t *testing.T) {
	for _, line := range []string{"tag_lat", "tag_bw", "tag_bw -T 2", "tag_lat -E sleep", "verbs_send_lat -T 2", "put_bw -x shm", "ucp_fadd --stamp-each"} {
		t.Run(line, func(t *testing.T) {
			p := start(t, append([]string{"-l", "-q", "-n", "0", "--interval", "50ms", "-t"}, strings.Fields(line)...)...)
			p.Says("[thread 0]")
			at := time.Now()
			require.NoError(t, p.Cmd.Process.Signal(os.Interrupt))
			p.End(patience)
			t.Logf("ended after %v", time.Since(at))
			assert.Equal(t, syscall.SIGINT, p.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
			assert.Equal(t, 1, strings.Count(p.Out.String(), "Final:"), "%s", &p.Out)
			test, _, _ := strings.Cut(line, " ")
			assert.Equal(t, "ucx_perftest: run "+test+": interrupted\n", p.Err.String())
		})
	}
}

// The other side of an interrupted one reports the interruption.
func TestInterruptedPeer(t *testing.T) {
	for _, line := range []string{"tag_lat", "ucp_put_bw"} {
		for _, victim := range []string{"client", "server"} {
			t.Run(line+" "+victim, func(t *testing.T) {
				port := suitetest.FreePort(t)
				s := start(t, "-p", port)
				c := start(t, "127.0.0.1", "-q", "-p", port, "-n", "0", "--interval", "50ms", "-b", file(t, "l", "a -t "+line+"\nb -t tag_bw\n"))
				c.Says("[thread 0]")
				dead, alive := s, c
				if victim == "client" {
					dead, alive = c, s
				}
				require.NoError(t, dead.Cmd.Process.Signal(os.Interrupt))
				dead.End(patience)
				assert.Equal(t, syscall.SIGINT, dead.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
				assert.Equal(t, 1, alive.End(patience))
				assert.Regexp(t, `the other side, goucx .*\(pid \d+ on .*\), reports: interrupted\n`, alive.Err.String())
				assert.Equal(t, 1, strings.Count(c.Out.String(), "Final:"), "%s", &c.Out)
				if victim == "client" {
					assert.Contains(t, c.Err.String(), "1 of 2 runs were not begun")
				}
			})
		}
	}
}

// A client that is interrupted before it measures, while its server ends because of it, or together with
// its server, ends by the signal.
func TestInterruptedAnywhere(t *testing.T) {
	for line, both := range map[string]bool{"-t tag_bw -s 100m -w 10000": false, "-t ucp_get -s 200m -w 10000": false, "-t tag_lat -E sleep": true, "-t tag_bw -T 2": true} {
		t.Run(line, func(t *testing.T) {
			port := suitetest.FreePort(t)
			s := start(t, "-p", port)
			c := start(t, append([]string{"127.0.0.1", "-q", "-p", port, "-n", "0", "--interval", "50ms"}, strings.Fields(line)...)...)
			if both {
				c.Says("[thread 0]")
				require.NoError(t, s.Cmd.Process.Signal(os.Interrupt))
			} else {
				c.Says("Transport:") // it warms up
			}
			require.NoError(t, c.Cmd.Process.Signal(os.Interrupt))
			c.End(patience)
			if both {
				assert.Equal(t, 1, strings.Count(c.Out.String(), "Final:"), "%s", &c.Out)
				return // the server's report may have come first
			}
			assert.Equal(t, syscall.SIGINT, c.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "%s", &c.Err)
			assert.Contains(t, c.Err.String(), ": interrupted\n")
			assert.Equal(t, 1, s.End(patience))
			assert.Contains(t, s.Err.String(), "reports: interrupted\n")
		})
	}
}
