//go:build linux && cgo && ibverbs

package ibv

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// sentinels are the errors of package ucs that the error numbers of the kernel stand for.
var sentinels = map[syscall.Errno]error{
	unix.EINVAL: ucs.ErrInvalid, unix.ERANGE: ucs.ErrInvalid, unix.E2BIG: ucs.ErrInvalid, unix.EFAULT: ucs.ErrInvalid,
	unix.ENOMEM: ucs.ErrNoMemory, unix.EAGAIN: ucs.ErrNoResource, unix.ENOSPC: ucs.ErrNoResource,
	unix.EBUSY:      ucs.ErrBusy,
	unix.EOPNOTSUPP: ucs.ErrUnsupported, unix.ENOSYS: ucs.ErrUnsupported, unix.EPROTONOSUPPORT: ucs.ErrUnsupported, unix.ENOTTY: ucs.ErrUnsupported,
	unix.ENETUNREACH: ucs.ErrUnreachable, unix.EHOSTUNREACH: ucs.ErrUnreachable, unix.ETIMEDOUT: ucs.ErrUnreachable, unix.ENETDOWN: ErrPortDown,
	unix.EACCES: ErrPermission, unix.EPERM: ErrPermission,
	unix.EBADF: ucs.ErrClosed,
	unix.EIO:   ErrDeviceGone, unix.ENODEV: ErrDeviceGone, unix.ENXIO: ErrDeviceGone,
}

// fault returns the error of a call that failed with err, an error number: what the kernel says,
// and the sentinel that it stands for.
func fault(err error) error {
	var no syscall.Errno
	if !errors.As(err, &no) || no == 0 {
		return fmt.Errorf("libibverbs names no reason: %w", ucs.ErrInvalid)
	}
	if s := sentinels[no]; s != nil {
		return fmt.Errorf("%w: %w", no, s)
	}
	return no
}

// returned is fault for calls that return an error number; nil for 0.
func returned[T ~int32](code T) error {
	if code == 0 {
		return nil
	}
	if code < 0 {
		code = -code
	}
	return fault(syscall.Errno(code))
}

// status returns the status of a post that failed with an error number.
//
//hot:bench BenchmarkCrossing
func status(no syscall.Errno) ucs.Status {
	switch no {
	case 0:
		return ucs.OK
	case unix.ENOMEM, unix.EAGAIN, unix.ENOSPC, unix.EBUSY:
		return ucs.NoResource
	case unix.EOPNOTSUPP, unix.ENOSYS:
		return ucs.Unsupported
	case unix.EBADF:
		return ucs.Closed
	case unix.EIO, unix.ENODEV, unix.ENXIO:
		return ucs.PeerFailed
	}
	return ucs.InvalidParam
}
