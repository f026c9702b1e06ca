//go:build !linux

package cpu

import "github.com/goucx/goucx/ucs"

// Affinity returns ErrUnsupported.
func Affinity() ([]int, error) { return nil, ucs.ErrUnsupported }

// SetAffinity returns ErrUnsupported.
func SetAffinity([]int) error { return ucs.ErrUnsupported }

// SetProcessAffinity returns ErrUnsupported.
func SetProcessAffinity([]int) error { return ucs.ErrUnsupported }
