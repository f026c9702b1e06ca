package verbs

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// ErrInfiniBand is the reason why a port cannot be used whose link layer is InfiniBand: address
// vectors of this package are those of RoCE v2.
var ErrInfiniBand = fmt.Errorf("its link layer is InfiniBand, and only RoCE v2 (Ethernet) is supported: %w", ucs.ErrUnsupported)
