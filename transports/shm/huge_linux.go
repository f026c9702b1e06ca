package shm

import "golang.org/x/sys/unix"

// collapse asks for huge pages under memory that has its pages already: a
// segment gets them in no other way where shmem_enabled is "never". A hint, so
// that a refusal is no error.
func collapse(mem []byte) { _ = unix.Madvise(mem, unix.MADV_COLLAPSE) }
