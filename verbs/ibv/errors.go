package ibv

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Reasons why a device or a call fails; compare with errors.Is. Each text says what to do.
var (
	// ErrNoDevice: the host, or the container, has no RDMA device.
	ErrNoDevice = fmt.Errorf("no RDMA device: %w", ucs.ErrUnsupported)
	// ErrPermission: the process may not open the device.
	ErrPermission = errors.New("no permission")
	// ErrNoGID: the port has no address that RoCE v2 can use.
	ErrNoGID = errors.New("the port has no GID of RoCE v2")
	// ErrMemlock: the process may not lock that much memory.
	ErrMemlock = fmt.Errorf("locked memory is limited: %w", ucs.ErrNoMemory)
	// ErrPortDown: the port has no link.
	ErrPortDown = errors.New("the port is down")
	// ErrDeviceGone is verbs.ErrDeviceGone.
	ErrDeviceGone = verbs.ErrDeviceGone
)
