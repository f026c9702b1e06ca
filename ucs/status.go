package ucs

import (
	"errors"
	"fmt"
)

// Status is the answer of every data-path call: one byte in a register, never
// an interface. Zero is success.
//
// Source: the call contract of UCX's UCT (ucs_status_t), reduced to what
// goucx's transports can answer.
type Status uint8

const (
	// OK: the operation is done and its buffer is the caller's again.
	OK Status = iota
	// InProgress: the operation was accepted; its completion comes, once.
	InProgress
	// NoResource: nothing happened. Ask the pending queue to be told when a
	// second try makes sense.
	NoResource
	// Busy: the state asked about changed meanwhile; progress or retry the
	// operation, then ask again.
	Busy
	// Unsupported: this transport does not carry the operation; Attr says so
	// before.
	Unsupported
	// InvalidParam: an argument is out of its documented range.
	InvalidParam
	// TooLong: the message is longer than the transport's limit for this form.
	TooLong
	// Truncated: the receive buffer was shorter than the message.
	Truncated
	// Canceled: the operation was withdrawn before it took effect.
	Canceled
	// PeerFailed: the peer died, hung up or sent garbage.
	PeerFailed
	// Closed: the object was closed by its owner.
	Closed
	// RemoteAccess: the remote key does not allow this access, or was revoked.
	RemoteAccess
	// NoMemory: an allocation was refused by the system.
	NoMemory
	// Unreachable: no transport reaches the address.
	Unreachable
	// Timeout: a bounded wait ended without the event.
	Timeout
	// Rejected: the peer does not want the message.
	Rejected

	numStatus
)

// Errors that a Status maps to; compare with errors.Is.
var (
	ErrInProgress   = errors.New("in progress")
	ErrNoResource   = errors.New("no resource")
	ErrBusy         = errors.New("busy")
	ErrUnsupported  = fmt.Errorf("%w", errors.ErrUnsupported)
	ErrInvalid      = errors.New("invalid parameter")
	ErrTooLong      = errors.New("message too long")
	ErrTruncated    = errors.New("message truncated")
	ErrCanceled     = errors.New("canceled")
	ErrPeerFailed   = errors.New("peer failed")
	ErrClosed       = errors.New("closed")
	ErrRemoteAccess = errors.New("remote access denied")
	ErrNoMemory     = errors.New("out of memory")
	ErrUnreachable  = errors.New("unreachable")
	ErrTimeout      = errors.New("timed out")
	ErrRejected     = errors.New("rejected by the peer")
	// ErrBufferExposed: a peer may still write into memory that should be given
	// back; no Status has it.
	ErrBufferExposed = errors.New("buffer stays exposed to peers")
)

var statuses = [numStatus]struct {
	constant string
	name     string
	err      error
}{
	OK:           {"OK", "OK", nil},
	InProgress:   {"InProgress", "in progress", ErrInProgress},
	NoResource:   {"NoResource", "no resource", ErrNoResource},
	Busy:         {"Busy", "busy", ErrBusy},
	Unsupported:  {"Unsupported", "unsupported", ErrUnsupported},
	InvalidParam: {"InvalidParam", "invalid parameter", ErrInvalid},
	TooLong:      {"TooLong", "message too long", ErrTooLong},
	Truncated:    {"Truncated", "message truncated", ErrTruncated},
	Canceled:     {"Canceled", "canceled", ErrCanceled},
	PeerFailed:   {"PeerFailed", "peer failed", ErrPeerFailed},
	Closed:       {"Closed", "closed", ErrClosed},
	RemoteAccess: {"RemoteAccess", "remote access denied", ErrRemoteAccess},
	NoMemory:     {"NoMemory", "out of memory", ErrNoMemory},
	Unreachable:  {"Unreachable", "unreachable", ErrUnreachable},
	Timeout:      {"Timeout", "timed out", ErrTimeout},
	Rejected:     {"Rejected", "rejected", ErrRejected},
}

// String names the status in lower-case words.
func (s Status) String() string {
	if s < numStatus {
		return statuses[s].name
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// GoString is the name of the status in Go, which is what a failing assertion
// prints.
func (s Status) GoString() string {
	if s < numStatus {
		return "ucs." + statuses[s].constant
	}
	return fmt.Sprintf("ucs.Status(%d)", uint8(s))
}

// Err maps the status to its sentinel; OK gives nil. It allocates nothing for
// the statuses of this package.
func (s Status) Err() error {
	if s < numStatus {
		return statuses[s].err
	}
	return fmt.Errorf("status %d: %w", uint8(s), ErrInvalid)
}
