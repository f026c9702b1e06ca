package platform

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// ptraceScope is the file with Yama's setting. A variable, for the tests.
var ptraceScope = "/proc/sys/kernel/yama/ptrace_scope"

// TryCopy returns why this process must not copy from memory of another process of the same user with
// process_vm_readv, and to it with process_vm_writev; nil: nothing that it can find out by itself forbids this. It
// tries both calls with its own memory, and reads Yama's setting.
//
// Even so the system can refuse the copies of a certain pair of processes: those of different pid namespaces, or of
// which one has capabilities that the other lacks.
func TryCopy() (read, write error) {
	tried := func(err error) error {
		if err != nil && seccompFilter() {
			err = fmt.Errorf("this process has a seccomp filter: %w", err)
		}
		return err
	}
	read, write = tried(copySelf(shmem.ProcessRead)), tried(copySelf(shmem.ProcessWrite))
	var others error
	switch scope := readLine(ptraceScope); {
	case scope != "" && scope != "0" && (scope == "3" || !hasPtrace()):
		others = fmt.Errorf("kernel.yama.ptrace_scope is %s: %w", scope, unix.EPERM)
	case tryPidfd() != nil: // copies need one: the id of a process that has ended is used again
		pair, err := connectSelf()
		if err = pair.tryPeerPidfd(err); err != nil {
			others = fmt.Errorf("%w: no descriptor of the other process: %w", ucs.ErrUnsupported, err)
		}
		pair.close()
	}
	if read == nil {
		read = others
	}
	if write == nil {
		write = others
	}
	return read, write
}

// CopyCost returns the time of a process_vm_readv of eight bytes, the least of several in this process: what a copy by
// system call costs beside its bytes. It takes some 30 us.
func CopyCost() time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 16 {
		start := time.Now()
		if copySelf(shmem.ProcessRead) == nil {
			least = min(least, time.Since(start))
		}
	}
	return least
}

// hasPtrace reports whether this process has CAP_SYS_PTRACE.
func hasPtrace() bool {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	return unix.Capget(&h, &sets[0]) == nil && sets[0].Effective>>unix.CAP_SYS_PTRACE&1 != 0
}

// seccompFilter reports whether this process has a seccomp filter.
func seccompFilter() bool {
	text, err := os.ReadFile("/proc/self/status")
	return err == nil && strings.Contains(string(text), "\nSeccomp:\t2\n")
}

// initialPIDNamespace is the inode of the host's own namespace (PROC_PID_INIT_INO of Linux).
const initialPIDNamespace = 0xEFFFFFFC

// OwnPIDNamespace reports whether this process is in another pid namespace than the host's.
func OwnPIDNamespace() bool {
	n := inode("/proc/self/ns/pid")
	return n != 0 && n != initialPIDNamespace
}
