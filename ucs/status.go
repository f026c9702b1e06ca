package ucs

import (
	"errors"
	"fmt"
)

// Status is the result of every data-path call: one byte, which is returned in a
// register. Zero is success.
//
// Source: the call contract of UCX's UCT (ucs_status_t), reduced to the statuses that
// goucx's transports return.
type Status uint8

const (
	// OK: the operation has completed, and the caller may reuse its buffer.
	OK Status = iota
	// InProgress: the operation was accepted. It completes later, exactly once.
	InProgress
	// NoResource: nothing was sent. Add the operation to the pending queue, which retries it
	// when resources are available.
	NoResource
	// Busy: the state has changed since it was queried. Progress or retry the operation, then
	// query again.
	Busy
	// Unsupported: the transport does not support the operation. Attr reports this.
	Unsupported
	// InvalidParam: an argument is out of its documented range.
	InvalidParam
	// TooLong: the message exceeds the transport's limit for this operation.
	TooLong
	// Truncated: the receive buffer was shorter than the message.
	Truncated
	// Canceled: the operation was canceled before it had any effect.
	Canceled
	// PeerFailed: the peer failed, closed the connection or violated the protocol.
	PeerFailed
	// Closed: the object was closed by its owner.
	Closed
	// RemoteAccess: the remote key does not allow this access, or was revoked.
	RemoteAccess
	// NoMemory: the system refused an allocation.
	NoMemory
	// Unreachable: no transport reaches the address.
	Unreachable
	// Timeout: a bounded wait ended without the event.
	Timeout
	// Rejected: the peer rejected the message.
	Rejected
	// BufferExposed: the operation has ended, and the peer may still write to its buffer.
	BufferExposed

	numStatus
)

// Errors for the statuses; compare with errors.Is.
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
	// ErrBufferExposed: a peer may still write into the memory that the call would
	// release, or whose operation has ended.
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

	BufferExposed: {"BufferExposed", "buffer exposed", ErrBufferExposed},
}

// String returns the status in lower-case words.
func (s Status) String() string {
	if s < numStatus {
		return statuses[s].name
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// GoString returns the name of the status in Go source. Failing assertions print it.
func (s Status) GoString() string {
	if s < numStatus {
		return "ucs." + statuses[s].constant
	}
	return fmt.Sprintf("ucs.Status(%d)", uint8(s))
}

// Err returns the error of the status, nil for OK. It does not allocate for the statuses
// of this package.
func (s Status) Err() error {
	if s < numStatus {
		return statuses[s].err
	}
	return fmt.Errorf("status %d: %w", uint8(s), ErrInvalid)
}
