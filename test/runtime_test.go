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
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

const (
	runtimeSize = 8
	// noticed bounds how long after a death the others may end. It is far more than they
	// take, so that a loaded machine does not fail the test.
	noticed = 10 * time.Second
)

// runtimeJob starts the mini runtime of examples/runtime: processes of one thread each, more of
// them than there are processors.
func runtimeJob(t *testing.T, path string, args ...string) (ranks []*suitetest.Command) {
	t.Helper()
	where := meetings["directory"](t)
	for rank := range runtimeSize {
		env := append(os.Environ(), where, "GOMAXPROCS=1", "JOB_RANK="+strconv.Itoa(rank), "JOB_SIZE="+strconv.Itoa(runtimeSize))
		ranks = append(ranks, runIn(t, env, path, args...))
	}
	return ranks
}

// runtimes returns the programs to test: the plain one, and in long runs that with the race
// detector.
func runtimes(t *testing.T) map[string]string {
	t.Helper()
	paths := map[string]string{"plain": built(t, "runtime")}
	if long() {
		paths["race"] = filepath.Join(t.TempDir(), "runtime")
		c := exec.Command("go", "build", "-race", "-o", paths["race"], "./examples/runtime")
		c.Dir = ".."
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return paths
}

// TestRuntime: messages from any source and collectives of 0 bytes to 4 MB, checked.
func TestRuntime(t *testing.T) {
	for name, path := range runtimes(t) {
		for _, tl := range []string{"all", "shm", "rc", "ud"} {
			most := 70_001
			if tl == "all" || long() {
				most = 4 << 20
			}
			t.Run(name+"/"+tl, func(t *testing.T) {
				t.Setenv(tlsEnv, tl)
				requireAllRight(t, runtimeJob(t, path, "--rounds", "1", "--max", strconv.Itoa(most)))
			})
		}
	}
}

// TestRuntimeLeave: one process leaves after the first round, and the others go on without it.
func TestRuntimeLeave(t *testing.T) {
	for name, path := range runtimes(t) {
		for _, tl := range []string{"all", "shm", "rc", "ud"} {
			t.Run(name+"/"+tl, func(t *testing.T) {
				t.Setenv(tlsEnv, tl)
				const leaves = 5
				ranks := runtimeJob(t, path, "--rounds", "3", "--max", "5000", "--leave", strconv.Itoa(leaves))
				requireAllRight(t, ranks)
				for rank, c := range ranks {
					assert.Equal(t, rank != leaves, strings.Contains(c.Out.String(), "round 2"), "rank %d:\n%s", rank, &c.Out)
				}
			})
		}
	}
}

func requireAllRight(t *testing.T, ranks []*suitetest.Command) {
	t.Helper()
	for rank, c := range ranks {
		assert.Zero(t, c.End(4*patience), "rank %d: %s", rank, &c.Err)
		assert.Contains(t, c.Out.String(), fmt.Sprintf("rank %d of %d: all right", rank, runtimeSize))
		assert.Empty(t, c.Err.String())
	}
	requireNoTrace(t)
}

// TestRuntimeKilled: one process is killed in the middle. All others end soon, and each names
// it, and none of those that only ended for that reason.
func TestRuntimeKilled(t *testing.T) {
	for name, path := range runtimes(t) {
		for _, tl := range []string{"all", "shm", "rc", "ud"} {
			t.Run(name+"/"+tl, func(t *testing.T) {
				t.Setenv(tlsEnv, tl)
				const victim = 3
				ranks := runtimeJob(t, path, "--rounds", "1000000", "--max", "70001")
				ranks[victim].Says("round 1\n")
				require.NoError(t, ranks[victim].Cmd.Process.Kill())
				killed := time.Now()
				for rank, c := range ranks {
					if rank == victim {
						continue
					}
					require.Equal(t, 1, c.End(noticed-time.Since(killed)), "rank %d", rank)
					said := c.Err.String()
					assert.Contains(t, said, fmt.Sprintf("rank %d of %d: rank %d has died", rank, runtimeSize, victim))
					assert.Equal(t, 1, strings.Count(said, "has died"), "it names others: %s", said)
				}
				t.Logf("all others had ended after %v", time.Since(killed).Round(time.Millisecond))
			})
		}
	}
}

// TestRuntimeLeaveAndKilled: one process leaves in order, later one is killed. The others name the
// killed one only.
func TestRuntimeLeaveAndKilled(t *testing.T) {
	for _, tl := range []string{"shm", "rc", "ud"} {
		t.Run(tl, func(t *testing.T) {
			t.Setenv(tlsEnv, tl)
			const victim, leaves = 3, 5
			ranks := runtimeJob(t, built(t, "runtime"), "--rounds", "1000000", "--max", "5000", "--leave", strconv.Itoa(leaves))
			ranks[victim].Says("round 3\n")
			require.NoError(t, ranks[victim].Cmd.Process.Kill())
			killed := time.Now()
			for rank, c := range ranks {
				switch rank {
				case victim:
				case leaves:
					assert.Zero(t, c.End(noticed), "rank %d: %s", rank, &c.Err)
				default:
					require.Equal(t, 1, c.End(noticed-time.Since(killed)), "rank %d", rank)
					said := c.Err.String()
					assert.Contains(t, said, fmt.Sprintf("rank %d of %d: rank %d has died", rank, runtimeSize, victim))
					assert.Equal(t, 1, strings.Count(said, "has died"), "it names others: %s", said)
				}
			}
		})
	}
}
