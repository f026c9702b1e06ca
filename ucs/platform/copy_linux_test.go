package platform

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// scoped sets what Yama's file has.
func scoped(t *testing.T, text string) {
	t.Helper()
	old := ptraceScope
	t.Cleanup(func() { ptraceScope = old })
	ptraceScope = filepath.Join(t.TempDir(), "ptrace_scope")
	require.NoError(t, os.WriteFile(ptraceScope, []byte(text), 0o644))
}

// withPtrace calls f on a thread with CAP_SYS_PTRACE or without, if it can have it.
func withPtrace(t *testing.T, has bool, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and is not unlocked: the thread ends
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		err := unix.Capget(&h, &sets[0])
		if sets[0].Effective &^= 1 << unix.CAP_SYS_PTRACE; has {
			sets[0].Effective |= 1 << unix.CAP_SYS_PTRACE
		}
		if err == nil {
			err = unix.Capset(&h, &sets[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("CAP_SYS_PTRACE: %v", err)
	}
}

func TestPtraceScope(t *testing.T) {
	if read, write := TryCopy(); read != nil || write != nil {
		t.Skipf("refused here: %v, %v", read, write)
	}
	for _, c := range []struct {
		scope       string
		has, refuse bool
	}{
		{"0", false, false},
		{"1", false, true},
		{"1", true, false},
		{"2", false, true},
		{"2", true, false},
		{"3", false, true},
		{"3", true, true},
		{"", false, false},
	} {
		t.Run(c.scope, func(t *testing.T) {
			scoped(t, c.scope+"\n")
			withPtrace(t, c.has, func() {
				read, write := TryCopy()
				if f := tryCopy(); c.scope > "0" {
					assert.Equal(t, "between unrelated processes only with CAP_SYS_PTRACE: kernel.yama.ptrace_scope is "+c.scope, f.Reason)
				} else {
					assert.Empty(t, f.Reason)
				}
				if !c.refuse {
					assert.NoError(t, read)
					assert.NoError(t, write)
					return
				}
				want := "kernel.yama.ptrace_scope is " + c.scope + ": operation not permitted"
				assert.EqualError(t, read, want)
				assert.EqualError(t, write, want)
			})
		})
	}
}
