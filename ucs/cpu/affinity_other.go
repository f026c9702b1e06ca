//go:build !linux

package cpu

import "github.com/goucx/goucx/ucs"

// Affinity answers ErrUnsupported.
func Affinity() ([]int, error) { return nil, ucs.ErrUnsupported }

// SetAffinity answers ErrUnsupported.
func SetAffinity([]int) error { return ucs.ErrUnsupported }

// SetProcessAffinity answers ErrUnsupported.
func SetProcessAffinity([]int) error { return ucs.ErrUnsupported }
