//go:build linux

package test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// yamaDenial begins the value of denyEnv under which this binary executes its arguments where Yama's setting, which
// follows, seems to be in force, without the capability that excepts from it.
const yamaDenial = "yama "

// exitNotPermitted is the exit code of a binary that may not make up Yama's setting.
const exitNotPermitted = 77

// makeUpYama mounts a /proc/sys/kernel with Yama's setting, in a mount namespace of this process, and drops
// CAP_SYS_PTRACE at the next execve.
func makeUpYama(scope string) {
	const kernel = "/proc/sys/kernel"
	runtime.LockOSThread() // until the execve
	boot, err := os.ReadFile(kernel + "/random/boot_id")
	check(err)
	err = unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		err = unix.Mount("none", kernel, "tmpfs", 0, "")
	}
	if errors.Is(err, syscall.EPERM) {
		os.Exit(exitNotPermitted)
	}
	check(err)
	for name, text := range map[string]string{"yama/ptrace_scope": scope + "\n", "random/boot_id": string(boot)} {
		check(os.Mkdir(filepath.Dir(filepath.Join(kernel, name)), 0o755))
		check(os.WriteFile(filepath.Join(kernel, name), []byte(text), 0o644))
	}
	check(unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_PTRACE, 0, 0, 0))
}

// TestPtraceScope: what Yama's setting forbids is known from the start, and named. Long messages go through the ring.
func TestPtraceScope(t *testing.T) {
	withinHost(t)
	for _, scope := range []string{"0", "1", "2", "3"} {
		name := yamaDenial + scope
		t.Run(scope, func(t *testing.T) {
			c := denied(t, name, append(os.Environ(), "UCX_SHM_FETCH_THRESH=6k"), built(t, "ucx_info"), "--why", "-P", "intra")
			if c.End(patience) == exitNotPermitted {
				t.Skip("the system does not permit to mount over /proc/sys/kernel")
			}
			said := c.Out.String()
			if reason := "kernel.yama.ptrace_scope is " + scope; scope == "0" {
				assert.NotContains(t, said, "yama")
				assert.Contains(t, said, "#     tag heap      6145..(inf)    copied by the receiver with process_vm_readv, and by the sender too")
			} else {
				assert.Contains(t, said, "#     tag heap      65537..(inf)   through the ring, copied by the sender and by the receiver: "+reason+": operation not permitted\n")
				assert.Contains(t, said, "#     process_vm: yes, but between unrelated processes only with CAP_SYS_PTRACE: "+reason+"\n")
			}
			assert.Contains(t, said, "#     tag allocated 2049..(inf)    copied by the receiver from its mapping of the memory")
			for _, memory := range []string{"heap", "host"} {
				deniedLong(t, name, memory)
			}
		})
	}
}
