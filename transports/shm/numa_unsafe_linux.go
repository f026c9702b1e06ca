package shm

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

const (
	mpolPreferred = 1  // MPOL_PREFERRED
	maxNodes      = 64 // in the mask of mbind
)

// preferNode has the kernel allocate the pages of mem, which is page-aligned, on a node, whichever process touches them first
// (rule 4 of package unsafe).
func preferNode(mem []byte, node uint) error {
	if node >= maxNodes {
		return ucs.ErrUnsupported
	}
	mask := uint64(1) << node
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), mpolPreferred,
		uintptr(unsafe.Pointer(&mask)), maxNodes+1, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// currentCPU returns the processor that executes the call (rule 4 of package unsafe); -1 if the system does not tell.
func currentCPU() int {
	var id uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&id)), 0, 0); errno != 0 {
		return -1
	}
	return int(id)
}
