package verbs

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// ErrInfiniBand is the reason why a port cannot be used whose link layer is InfiniBand: address
// vectors of this package are those of RoCE v2.
var ErrInfiniBand = fmt.Errorf("its link layer is InfiniBand, and only RoCE v2 (Ethernet) is supported: %w", ucs.ErrUnsupported)

// ErrDeviceGone: the device was removed, or has failed. Its context raises EventDeviceFatal, and work requests
// in flight may have no completion.
var ErrDeviceGone = errors.New("the device was removed or has failed")
