package perf

import "errors"

// ErrInterrupted ends a run after Config.Interrupt.
var ErrInterrupted = errors.New("interrupted")

// ErrNotSupportedYet: UCX's tool supports it, goucx does not yet. It wraps errors.ErrUnsupported.
var ErrNotSupportedYet error = notYet{}

type notYet struct{}

func (notYet) Error() string { return "not supported yet" }
func (notYet) Unwrap() error { return errors.ErrUnsupported }
