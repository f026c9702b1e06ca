//go:build linux

package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// commands, and the examples, are built once, without cgo as users build them.
var commands struct {
	sync.Once
	dir string
	err error
}

func buildCommands() {
	if commands.dir, commands.err = os.MkdirTemp("", "goucx-commands-"); commands.err != nil {
		return
	}
	c := exec.Command("go", "build", "-o", commands.dir, "./cmd/...", "./examples/...")
	c.Dir, c.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		commands.err = &buildError{string(out), err}
	}
}

type buildError struct {
	out string
	err error
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + e.out }

func removeCommands() {
	if commands.dir != "" {
		_ = os.RemoveAll(commands.dir) // it lies where temporary files do
	}
}

// built gives the path of a command of ours.
func built(t testing.TB, name string) string {
	t.Helper()
	commands.Do(buildCommands)
	require.NoError(t, commands.err)
	return filepath.Join(commands.dir, name)
}

// run starts a command; it is killed, by its id, when the test ends.
func run(t testing.TB, path string, args ...string) *suitetest.Command {
	t.Helper()
	return runIn(t, os.Environ(), path, args...)
}

// runIn is run with an environment.
func runIn(t testing.TB, env []string, path string, args ...string) *suitetest.Command {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = env
	return suitetest.Start(t, cmd)
}

// listens waits until somebody listens on the port.
func listens(t testing.TB, port string) {
	t.Helper()
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	entry := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A `, n))
	require.Eventually(t, func() bool {
		v4, err4 := os.ReadFile("/proc/net/tcp")
		v6, err6 := os.ReadFile("/proc/net/tcp6")
		return err4 == nil && entry.Match(v4) || err6 == nil && entry.Match(v6)
	}, patience, 5*time.Millisecond, "nobody listens on port %s", port)
}
