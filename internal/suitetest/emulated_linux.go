package suitetest

import (
	"syscall"
	"testing"
)

// SkipEmulated skips the test under a user-mode emulator, which is detected by a kernel that
// accepts any advice on memory. An emulator loses count of truncated descriptors. On an x86 host,
// qemu 7.2 lets an arm64 LDAR pass the STLR before it. The architecture forbids that (Arm ARM,
// B2.3, RCsc), and Go's atomics rely on it.
func SkipEmulated(t testing.TB) {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, syscall.Getpagesize(), syscall.PROT_READ, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Munmap(b); err != nil {
			t.Error(err)
		}
	}()
	if syscall.Madvise(b, 0x7fff) == nil {
		t.Skip("emulated kernel")
	}
}
