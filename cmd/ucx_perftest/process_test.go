package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// commandEnv makes this test binary the command itself.
const commandEnv = "GOUCX_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandEnv) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start runs the command; it is killed when the test ends.
func start(t testing.TB, args ...string) *suitetest.Command {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), commandEnv+"=1")
	return suitetest.Start(t, cmd)
}

// patience bounds what a loaded machine may take for a short run.
const patience = 60 * time.Second

// both runs a server and a client and gives the outputs of both; either must
// end well.
func both(t testing.TB, server, client []string) (s, c *suitetest.Command) {
	t.Helper()
	port := suitetest.FreePort(t)
	s = start(t, append([]string{"-p", port}, server...)...)
	c = start(t, append([]string{"127.0.0.1", "-p", port}, client...)...)
	code := c.End(patience)
	require.Zero(t, code, "client: %s\nserver: %s", &c.Err, &s.Err)
	require.Zero(t, s.End(patience), "server: %s", &s.Err)
	return s, c
}

// command runs the command within this process.
func command(args ...string) (stdout, stderr string, err error) {
	var o, e bytes.Buffer
	err = run(args, &o, &e)
	return o.String(), e.String(), err
}
