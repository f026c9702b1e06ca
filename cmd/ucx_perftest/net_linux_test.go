package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// Tests of UCT between two processes over UDP; ping-pongs of data are verified.
func TestUCTOverUDP(t *testing.T) {
	for _, line := range []string{
		"am_lat -V -s 40", "am_lat -D bcopy -V -s 3000", "am_lat -D zcopy -V -H 16 -s 2000", "am_bw", "am_bw -D bcopy -s 2048",
		"am_bw -D zcopy -s 16,8,24 -i 64",
	} {
		for _, transport := range []string{"rc -d lo:1", "ud -d lo", "ud_verbs -d lo:1"} {
			overUDP(t, "-x "+transport+" -t "+line)
		}
	}
	for _, line := range []string{
		"put_lat -V -s 40", "put_lat -D bcopy -V -s 3000", "put_lat -D zcopy -V -s 100000 -n 20", "put_bw", "put_bw -D bcopy -s 2048",
		"put_bw -D zcopy -s 1000000 -n 20", "get -D bcopy", "get -D zcopy -s 100000 -n 20", "add_lat", "add_mr", "fadd", "cswap --stamp-each",
	} {
		overUDP(t, "-x rc -d lo -t "+line)
	}
}

func overUDP(t *testing.T, line string) {
	t.Run(line, func(t *testing.T) {
		_, c := both(t, nil, append([]string{"-q", "-n", "300"}, strings.Fields(line)...))
		assert.Regexp(t, finalRow, c.Out.String())
	})
}

// Tests of UCP choose the transport by UCX's variables.
func TestUCPOverUDP(t *testing.T) {
	t.Setenv("UCX_NET_DEVICES", "lo")
	all := []string{
		"tag_lat -V", "tag_lat -V -s 300000 -n 20", "tag_bw", "tag_bw -s 300000 -n 20", "tag_sync_lat", "ucp_am_lat -H 16 -V -s 100",
		"ucp_am_bw", "tag_lat -E sleep", "ucp_put_lat -V", "ucp_put_bw -s 1000000 -n 20", "ucp_get -s 5000", "ucp_fadd", "ucp_cswap", "ucp_swap", "ucp_add",
	}
	for tls, lines := range map[string][]string{"ud": all, "rc": all, "ib,self": {"tag_lat", "ucp_put_bw"}} {
		t.Run(tls, func(t *testing.T) {
			t.Setenv("UCX_TLS", tls)
			for _, line := range lines {
				overUDP(t, "-t "+line)
			}
		})
	}
}

// Whoever dies, the other side ends with an error. Outside of make nightly the server is killed.
func TestKilledOverUDP(t *testing.T) {
	for line, tls := range map[string]string{
		"-t am_lat -x rc -d lo": "", "-t put_bw -x rc -d lo -D zcopy": "", "-t get -x rc -d lo -D bcopy": "", "-t am_bw -x ud -d lo": "",
		"-t tag_lat": "rc", "-t ucp_put_bw -s 100000": "rc", "-t tag_bw": "ud", "-t ucp_put_bw": "rc", "-t ucp_add": "rc",
	} {
		victims := []string{"server", "client"}
		if !suitetest.All() {
			victims = victims[:1]
		}
		for _, victim := range victims {
			t.Run(line+" "+tls+" "+victim, func(t *testing.T) {
				if tls != "" {
					t.Setenv("UCX_TLS", tls)
					t.Setenv("UCX_NET_DEVICES", "lo")
				}
				port := suitetest.FreePort(t)
				s := start(t, "-p", port)
				c := start(t, append([]string{"127.0.0.1", "-q", "-p", port, "-n", "0", "--interval", "50ms"}, strings.Fields(line)...)...)
				c.Says("[thread 0]") // it runs
				dead, alive := s, c
				if victim == "client" {
					dead, alive = c, s
				}
				require.NoError(t, dead.Cmd.Process.Kill())
				at := time.Now()
				assert.Equal(t, 1, alive.End(patience))
				took := time.Since(at)
				t.Logf("%v after the kill: %s", took, strings.TrimSpace(alive.Err.String()))
				assert.Less(t, took, 8*time.Second, "waits for nothing of who is dead")
				assert.Regexp(t, `the other side is gone: .* \(pid \d+ on |peer failed: .`, alive.Err.String(), "who, or why")
			})
		}
	}
}

// A connection whose other side stands still fails, which ends both sides, though
// their control link is well.
func TestStoppedOverUDP(t *testing.T) {
	t.Setenv("UCX_NET_DEVICES", "lo")
	t.Setenv("UCX_RC_TIMEOUT", "100ms")
	t.Setenv("UCX_RC_RETRY_COUNT", "3")
	t.Setenv("UCX_UD_TIMEOUT", "1s")
	for line, tls := range map[string]string{"-t tag_lat": "rc", "-t tag_lat -E sleep": "rc", "-t tag_sync_lat": "ud"} {
		t.Run(line+" "+tls, func(t *testing.T) {
			t.Setenv("UCX_TLS", tls)
			port := suitetest.FreePort(t)
			s := start(t, "-p", port)
			c := start(t, append([]string{"127.0.0.1", "-q", "-p", port, "-n", "0", "--interval", "50ms"}, strings.Fields(line)...)...)
			c.Says("[thread 0]") // it runs
			require.NoError(t, s.Cmd.Process.Signal(syscall.SIGSTOP))
			at := time.Now()
			assert.Equal(t, 1, c.End(patience))
			t.Logf("%v after the stop: %s", time.Since(at), strings.TrimSpace(c.Err.String()))
			assert.Contains(t, c.Err.String(), "peer failed: ")
			require.NoError(t, s.Cmd.Process.Signal(syscall.SIGCONT))
			assert.Equal(t, 1, s.End(patience))
		})
	}
}

// With -o the responder does nothing. An operation that its worker carries out is refused, any other
// one runs.
func TestUnprogressedOverUDP(t *testing.T) {
	t.Setenv("UCX_NET_DEVICES", "lo")
	for tls, lines := range map[string]map[string]string{
		"ud": {
			"ucp_get": "get", "ucp_put_bw": "put", "ucp_add": "the atomic add of 8 bytes", "ucp_fadd -s 4": "the atomic add of 4 bytes",
			"ucp_swap": "the atomic swap of 8 bytes",
		},
		"rc": {
			"ucp_get": "", "ucp_put_bw -s 100000": "", "ucp_fadd": "", "ucp_cswap": "", "ucp_fadd -O 8": "the atomic add of 8 bytes",
			"ucp_swap": "the atomic swap of 8 bytes", "ucp_fadd -s 4": "the atomic add of 4 bytes", "ucp_add": "the atomic add of 8 bytes",
		},
		"shm": {"ucp_get": "", "ucp_put_bw": "", "ucp_add": "", "ucp_swap -s 4 -O 8": ""},
	} {
		for line, refused := range lines {
			t.Run(tls+" "+line, func(t *testing.T) {
				t.Setenv("UCX_TLS", tls)
				port := suitetest.FreePort(t)
				s := start(t, "-p", port)
				c := start(t, append([]string{"127.0.0.1", "-q", "-p", port, "-o", "-n", "300", "-t"}, strings.Fields(line)...)...)
				codes := []int{c.End(patience), s.End(patience)}
				if refused == "" {
					assert.Equal(t, []int{0, 0}, codes, "%s%s", &c.Err, &s.Err)
					return
				}
				assert.Equal(t, []int{1, 1}, codes)
				want := "-o: " + tls + "/lo:1 needs the responder's progress for " + refused + ": unsupported operation"
				assert.Contains(t, c.Err.String(), want)
				assert.Contains(t, s.Err.String(), want)
			})
		}
	}
}
