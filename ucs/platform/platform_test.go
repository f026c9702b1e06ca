package platform

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// childMode makes a re-executed test binary print its ids and end.
const childMode = "GOUCX_PLATFORM_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childMode) != "" {
		start, _ := StartTime(os.Getpid())
		fmt.Printf("%x %x %d\n", HostID(), ProcessID(), start)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child runs this binary as another process and gives its host id and process
// id in hex.
func child(t *testing.T) (host, process string) {
	t.Helper()
	run := func(name string, args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), name, args...)
		c.Env = append(os.Environ(), childMode+"=1")
		out, err := c.Output()
		return string(out), err
	}
	out, err := run(os.Args[0])
	if errors.Is(err, syscall.ENOEXEC) { // cross-built and emulated by hand
		out, err = run("qemu-aarch64", os.Args[0])
	}
	require.NoError(t, err)
	words := strings.Fields(out)
	require.Len(t, words, 3)
	return words[0], words[1]
}

func TestIDs(t *testing.T) {
	assert.Equal(t, HostID(), HostID())
	assert.Equal(t, ProcessID(), ProcessID())
	assert.NotZero(t, HostID())
	assert.NotZero(t, ProcessID())
	host, process := child(t)
	assert.Equal(t, fmt.Sprintf("%x", HostID()), host)
	assert.NotEqual(t, fmt.Sprintf("%x", ProcessID()), process)
	_, again := child(t)
	assert.NotEqual(t, process, again)
}

func TestHostDigest(t *testing.T) {
	assert.Equal(t, hostDigest("b", "m", "n"), hostDigest("b", "other", "container"))
	assert.NotEqual(t, hostDigest("b", "m", "n"), hostDigest("c", "m", "n"))
	assert.NotEqual(t, hostDigest("", "m", "n"), hostDigest("", "m", "o"))
	assert.NotEqual(t, hostDigest("", "m", "n"), hostDigest("", "o", "n"))
	assert.NotEqual(t, hostDigest("m n", "", ""), hostDigest("", "m", "n"))
}

func TestSelf(t *testing.T) {
	id := Self()
	assert.Equal(t, os.Getpid(), id.PID)
	assert.Equal(t, os.Getuid(), id.UID)
	if runtime.GOOS != "linux" {
		return
	}
	assert.NotEmpty(t, id.BootID)
	assert.NotZero(t, id.PIDNamespace)
	assert.NotZero(t, id.NetNamespace)
	again, ok := StartTime(id.PID)
	assert.True(t, ok)
	if runtime.GOARCH == "arm64" { // where it may be emulated: qemu-user makes the file up, with the time of the read
		assert.InDelta(t, id.StartTime, again, 1000)
	} else {
		assert.Equal(t, id.StartTime, again)
	}
	_, ok = StartTime(1 << 30)
	assert.False(t, ok)
}

func TestParseStartTime(t *testing.T) {
	rest := " S 1 2 3 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 98765 1000 2"
	for _, name := range []string{"cat", "a b", "a) (b", ")", ""} {
		n, ok := parseStartTime("42 (" + name + ")" + rest)
		assert.True(t, ok, name)
		assert.Equal(t, uint64(98765), n, name)
	}
	for _, stat := range []string{"", ")", "42 (cat) S 1", "42 (cat) S 1 2 3 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 x"} {
		_, ok := parseStartTime(stat)
		assert.False(t, ok, stat)
	}
}

func FuzzParseStartTime(f *testing.F) {
	f.Add("42 (a) b) S 1 2 3 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 98765 1000 2")
	f.Add("")
	f.Fuzz(func(_ *testing.T, s string) { parseStartTime(s) })
}

func TestProbe(t *testing.T) {
	r := Probe()
	require.NotEmpty(t, r.Features)
	for _, f := range r.Features {
		assert.True(t, f.Available || f.Reason != "", "%s is refused without a reason", f.Name)
		if f.Name == EventFD {
			assert.Equal(t, runtime.GOOS == "linux", f.Available, f.Reason)
		}
	}
	r.Features[0].Name = "scribbled"
	assert.NotEqual(t, "scribbled", Probe().Features[0].Name, "callers must not share the cache")
	if runtime.GOOS != "linux" {
		assert.False(t, slices.ContainsFunc(r.Features, func(f Feature) bool { return f.Available }))
	}
}

func TestProbeLeavesNothingOpen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /proc/self/fd")
	}
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	probe()
	before := count()
	probe()
	assert.Equal(t, before, count())
}

func TestStopped(t *testing.T) {
	if runtime.GOOS != "linux" {
		return
	}
	assert.False(t, Stopped(os.Getpid()))
	c := exec.Command("sleep", "60")
	require.NoError(t, c.Start())
	defer func() { _ = c.Wait() }()
	assert.False(t, Stopped(c.Process.Pid))
	require.NoError(t, c.Process.Signal(syscall.SIGSTOP))
	assert.Eventually(t, func() bool { return Stopped(c.Process.Pid) }, 10*time.Second, time.Millisecond)
	require.NoError(t, c.Process.Signal(syscall.SIGCONT))
	assert.Eventually(t, func() bool { return !Stopped(c.Process.Pid) }, 10*time.Second, time.Millisecond)
	require.NoError(t, c.Process.Kill())
	assert.Eventually(t, func() bool { return Stopped(c.Process.Pid) }, 10*time.Second, time.Millisecond, "a zombie")
}
