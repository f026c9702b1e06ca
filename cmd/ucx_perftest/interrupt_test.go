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

// The other side of an interrupted one says so.
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
				if victim == "client" {
					assert.Equal(t, 1, strings.Count(c.Out.String(), "Final:"), "%s", &c.Out)
					assert.Contains(t, c.Err.String(), "1 of 2 runs were not begun")
				}
			})
		}
	}
}
