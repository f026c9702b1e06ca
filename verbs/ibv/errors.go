package ibv

import (
	"errors"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Reasons why a device or a call fails; compare with errors.Is. Each text says what to do.
var (
	// ErrNoDevice: the host, or the container, has no RDMA device.
	ErrNoDevice error = &reason{"no RDMA device", ucs.ErrUnsupported}
	// ErrPermission: the process may not open the device.
	ErrPermission = errors.New("no permission")
	// ErrNoGID: the port has no address that RoCE v2 can use.
	ErrNoGID = errors.New("the port has no GID of RoCE v2")
	// ErrMemlock: the process may not lock that much memory.
	ErrMemlock error = &reason{"locked memory is limited", ucs.ErrNoMemory}
	// ErrPortDown: the port has no link.
	ErrPortDown = errors.New("the port is down")
	// ErrDeviceGone is verbs.ErrDeviceGone.
	ErrDeviceGone = verbs.ErrDeviceGone
)

// reason is an error that says no more than its text, and is of a kind of package ucs.
type reason struct {
	text string
	kind error
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.kind }
