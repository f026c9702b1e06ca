//go:build !unix

package mapped

import "github.com/goucx/goucx/ucs"

// MapAnonymous returns ErrUnsupported.
func MapAnonymous(int) ([]byte, error) { return nil, ucs.ErrUnsupported }

// Unmap does nothing.
func Unmap([]byte) error { return nil }
