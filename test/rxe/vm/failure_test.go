package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// started boots a machine with the programs that every machine has.
func started(t *testing.T, c Config) *Machine {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("qemu-system-x86_64 is not installed: make test-rxe installs it")
	}
	k, err := Load(t.Context(), "")
	require.NoError(t, err)
	m, err := Start(t.Context(), k, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// TestPanic: a panic of the kernel ends the running job with the kernel's last words, and later ones, too.
func TestPanic(t *testing.T) {
	m := started(t, Config{})
	_, err := m.Run(Job{Name: "crash", Argv: []string{"sh", "-c", "sleep 0.1; echo c > /proc/sysrq-trigger"}})
	require.ErrorIs(t, err, errMachine)
	assert.ErrorContains(t, err, "job crash: ")
	assert.ErrorContains(t, err, "it ended")
	assert.ErrorContains(t, err, "Kernel panic - not syncing: sysrq triggered crash")
	_, err = m.Run(Job{Argv: []string{"cat", "/proc/uptime"}})
	assert.ErrorIs(t, err, errMachine)
}

// TestHang: a machine that stands still is reported after Config.Silence, not at the end of the
// job's limit.
func TestHang(t *testing.T) {
	m := started(t, Config{Silence: 10 * time.Second})
	p, err := m.Start(Job{Name: "endless", Argv: []string{"sleep", "1000"}, Limit: time.Hour})
	require.NoError(t, err)
	_, err = m.Run(Job{Argv: []string{"sh", "-c", "echo last words > /dev/kmsg"}})
	require.NoError(t, err)
	require.NoError(t, m.qemu.Process.Signal(unix.SIGSTOP))
	began := time.Now()
	_, err = p.Wait()
	require.ErrorIs(t, err, errMachine)
	assert.ErrorContains(t, err, "job endless: ")
	assert.ErrorContains(t, err, "it hangs: no report within 10s")
	assert.ErrorContains(t, err, "last words")
	assert.Less(t, time.Since(began), time.Minute)
}

// TestNoBoot: a machine that does not come up is reported with what the kernel said.
func TestNoBoot(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("qemu-system-x86_64 is not installed: make test-rxe installs it")
	}
	k, err := Load(t.Context(), "")
	require.NoError(t, err)
	bad := filepath.Join(t.TempDir(), "veth")
	require.NoError(t, os.WriteFile(bad, []byte("no module"), 0o600))
	broken := *k
	broken.Modules = []string{bad}
	_, err = Start(t.Context(), &broken, Config{})
	require.ErrorIs(t, err, errMachine)
	assert.NotErrorIs(t, err, errBootStands, "its end is noticed at once")
	assert.ErrorContains(t, err, "guest: load module veth: exec format error")
}

// TestNoKernel: where apt knows no kernel package, the error says so and what to do.
func TestNoKernel(t *testing.T) {
	if _, err := exec.LookPath("apt-cache"); err != nil {
		t.Skip("apt is not installed")
	}
	empty := t.TempDir()
	conf := filepath.Join(empty, "apt.conf")
	require.NoError(t, os.WriteFile(conf, []byte("Dir::State::Lists \""+empty+"\";\nDir::Cache::pkgcache \"\";\nDir::Cache::srcpkgcache \"\";\n"), 0o600))
	t.Setenv("APT_CONFIG", conf)
	_, err := Load(t.Context(), t.TempDir())
	assert.ErrorContains(t, err, "linux-image-amd64")
	assert.ErrorContains(t, err, "apt-get update")
}

// TestMissingPrograms: all programs that are missing are named, with their packages.
func TestMissingPrograms(t *testing.T) {
	err := buildInitramfs(t.Context(), filepath.Join(t.TempDir(), "initramfs"), &Kernel{}, &Config{Programs: []string{"ib_no_such", "no-such"}})
	assert.ErrorContains(t, err, "ib_no_such is not installed: apt-get install perftest")
	assert.ErrorContains(t, err, "no-such is not installed: apt-get install no-such")
}
