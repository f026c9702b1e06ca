//go:build linux

package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// meetings are the places where the processes of an example may meet.
var meetings = map[string]func(t testing.TB) string{
	"directory": func(t testing.TB) string { return "JOB_DIR=" + t.TempDir() },
	"tcp":       func(t testing.TB) string { return "JOB_ADDR=localhost:" + suitetest.FreePort(t) },
}

// job runs an example with so many processes and wants each to say "all right".
func job(t *testing.T, size int, where, name string, args ...string) {
	t.Helper()
	var ranks []*suitetest.Command
	for rank := range size {
		ranks = append(ranks, runRank(t, rank, size, where, name, args...))
	}
	for rank, c := range ranks {
		assert.Zero(t, c.End(patience), "rank %d: %s", rank, &c.Err)
		assert.Contains(t, c.Out.String(), fmt.Sprintf("rank %d of %d", rank, size))
		assert.Contains(t, c.Out.String(), "all right")
		assert.Empty(t, c.Err.String())
	}
	requireNoTrace(t)
}

func runRank(t *testing.T, rank, size int, where, name string, args ...string) *suitetest.Command {
	t.Helper()
	env := append(os.Environ(), where, "JOB_RANK="+strconv.Itoa(rank), "JOB_SIZE="+strconv.Itoa(size))
	return runIn(t, env, built(t, name), args...)
}

// TestExamples: what users copy works, with few and many processes, met in files
// and by TCP, with blocks that are one message, several and very many.
func TestExamples(t *testing.T) {
	for _, name := range []string{"ring", "alltoall"} {
		for _, by := range []string{"tag", "am", "put"} {
			for _, size := range []int{2, 4, 8} {
				for place, where := range meetings {
					t.Run(fmt.Sprintf("%s/%s/%d/%s", name, by, size, place), func(t *testing.T) {
						job(t, size, where(t), name, "--by", by, "--block", strconv.Itoa(64<<10+size))
					})
				}
			}
		}
	}
}

func TestExamplesBlocks(t *testing.T) {
	for _, name := range []string{"ring", "alltoall"} {
		for _, by := range []string{"tag", "am", "put"} {
			for _, block := range []string{"1", "8", "4000", "3000001"} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, by, block), func(t *testing.T) {
					job(t, 3, meetings["directory"](t), name, "--by", by, "--block", block)
				})
			}
		}
	}
}

func TestExampleHalo(t *testing.T) {
	for size, threads := range map[int]int{1: 0, 2: 0, 5: 0, 3: 2, 4: 4} {
		t.Run(fmt.Sprintf("%d, %d threads", size, threads), func(t *testing.T) {
			job(t, size, meetings["directory"](t), "halo", "--steps", "100", "--threads", strconv.Itoa(threads))
		})
	}
}

// TestExampleChecks: an example that is told to check finds what is wrong.
func TestExampleChecks(t *testing.T) {
	where := meetings["directory"](t)
	one := runRank(t, 0, 2, where, "ring", "--block", "100")
	other := runRank(t, 1, 2, where, "ring", "--block", "99")
	require.Equal(t, 1, other.End(patience), "a longer block came")
	require.Contains(t, other.Err.String(), "rank 1 of 2")
	require.Equal(t, 1, one.End(patience))
}

// TestExamplesOverEachTransport: the processes of each example exchange data over each
// reliable transport.
func TestExamplesOverEachTransport(t *testing.T) {
	where := meetings["directory"]
	for _, tl := range []string{"shm", "rc", "ud"} {
		t.Run(tl, func(t *testing.T) {
			t.Setenv(tlsEnv, tl)
			for _, name := range []string{"ring", "alltoall"} {
				for _, by := range []string{"tag", "am", "put"} {
					t.Run(name+" by "+by, func(t *testing.T) {
						job(t, 3, where(t), name, "--by", by, "--block", "70001")
					})
				}
			}
			t.Run("halo", func(t *testing.T) { job(t, 3, where(t), "halo", "--steps", "20") })
			for size, threads := range map[int]int{2: 4, 3: 3, 4: 1} {
				t.Run(fmt.Sprintf("halo, %d processes, %d threads", size, threads), func(t *testing.T) {
					job(t, size, where(t), "halo", "--steps", "20", "--threads", strconv.Itoa(threads))
				})
			}
			t.Run("pingpong", examplePingPong)
			t.Run("amecho", exampleAMEcho)
		})
	}
}

// TestGoExamplesOverEachTransport: the functions that the documentation of the packages
// and the README show run over each transport.
func TestGoExamplesOverEachTransport(t *testing.T) {
	for _, pkg := range []string{".", "./ucp"} {
		path := filepath.Join(t.TempDir(), "examples")
		c := exec.Command("go", "test", "-c", "-o", path, pkg)
		c.Dir, c.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		for _, tl := range []string{"shm", "rc", "ud"} {
			t.Run(pkg+" over "+tl, func(t *testing.T) {
				c := runIn(t, append(os.Environ(), tlsEnv+"="+tl), path, "-test.run=^Example", "-test.v")
				code := c.End(patience)
				require.Zero(t, code, "%s\n%s", &c.Out, &c.Err)
				require.Contains(t, c.Out.String(), "--- PASS: Example")
			})
		}
	}
}

func TestExamplePingPong(t *testing.T) { examplePingPong(t) }

func examplePingPong(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "address")
	server := run(t, built(t, "pingpong"), "--file", file, "--rounds", "1000")
	client := run(t, built(t, "pingpong"), "--file", file, "--rounds", "1000", "--client")
	for _, c := range []*suitetest.Command{server, client} {
		require.Zero(t, c.End(patience), "%s", &c.Err)
	}
	require.True(t, strings.HasPrefix(client.Out.String(), "1000 round trips"), "%s", &client.Out)
	require.NoFileExists(t, file)
}

// TestExampleAMEcho: a server sleeps until clients come, one after the other and
// at once, and ends when it is told to.
func TestExampleAMEcho(t *testing.T) { exampleAMEcho(t) }

func exampleAMEcho(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "address")
	server := run(t, built(t, "amecho"), "--file", file)
	var clients []*suitetest.Command
	for n := range 4 {
		c := run(t, built(t, "amecho"), "--file", file, "--client", "--messages", "300")
		if clients = append(clients, c); n == 0 {
			require.Zero(t, c.End(patience), "%s", &c.Err)
		}
	}
	for _, c := range clients {
		require.Zero(t, c.End(patience), "%s", &c.Err)
		require.Contains(t, c.Out.String(), "300 messages came back, all right")
	}
	require.NoError(t, server.Cmd.Process.Signal(os.Interrupt))
	require.Zero(t, server.End(patience), "%s", &server.Err)
	require.Empty(t, server.Err.String())
	require.NoFileExists(t, file)
}
