package shmem

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2), linux/membarrier.h.
const (
	barrierGlobal          = 1 << 1
	barrierRegisterGlobal  = 1 << 2
	barrierPrivate         = 1 << 3
	barrierRegisterPrivate = 1 << 4
)

var (
	registerGlobal  = sync.OnceValue(func() error { return registerBarrier("global", barrierRegisterGlobal) })
	registerPrivate = sync.OnceValue(func() error { return registerBarrier("private", barrierRegisterPrivate) })
)

// RegisterGlobal registers this process for GlobalBarrier, which reaches only registered
// processes. Later calls return the result of the first.
//
// Errors: ucs.ErrUnsupported if the kernel or container refuses it.
func RegisterGlobal() error { return registerGlobal() }

// RegisterPrivate registers this process for PrivateBarrier. Otherwise it is as RegisterGlobal.
func RegisterPrivate() error { return registerPrivate() }

// GlobalBarrier executes a full memory barrier in every running thread of every registered
// process. Stores before a thread's barrier are visible to loads after this call, and
// stores before this call to loads after that barrier. Cost: 0.2 us, or about 15 us
// while such threads run on other CPUs.
func GlobalBarrier() error {
	if err := registerGlobal(); err != nil {
		return err
	}
	return membarrier("global", barrierGlobal)
}

// PrivateBarrier is like GlobalBarrier for the threads of this process only.
func PrivateBarrier() error {
	if err := registerPrivate(); err != nil {
		return err
	}
	return membarrier("private", barrierPrivate)
}

func registerBarrier(kind string, cmd uintptr) error { return membarrier("register "+kind, cmd) }

// membarrier uses a scheduler-aware call, as it may take long.
func membarrier(kind string, cmd uintptr) error {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, cmd, 0, 0)
	switch errno {
	case 0:
		return nil
	case unix.ENOSYS, unix.EPERM, unix.EINVAL:
		return unsupported("membarrier "+kind, errno)
	}
	return fmt.Errorf("membarrier %s: %w", kind, errno)
}
