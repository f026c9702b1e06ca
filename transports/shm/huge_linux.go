package shm

import "golang.org/x/sys/unix"

// collapseHuge asks the kernel to replace the pages of mem by huge pages. This is the only
// way to get them if shmem_enabled is "never". This is advisory: a refusal is no error.
func collapseHuge(mem []byte) { _ = unix.Madvise(mem, unix.MADV_COLLAPSE) }
