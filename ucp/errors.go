package ucp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Errors for errors.Is. Most are defined in package ucs.
var (
	// ErrCanceled: the operation was canceled, or its endpoint was aborted.
	ErrCanceled = ucs.ErrCanceled
	// ErrTruncated: the message was longer than the receive buffer, which holds its
	// beginning. Message.Len is the full length.
	ErrTruncated = ucs.ErrTruncated
	// ErrPeerFailed: the peer died, closed its worker, aborted its last endpoint to this worker,
	// or violated the protocol.
	ErrPeerFailed = ucs.ErrPeerFailed
	// ErrPeerClosed: the peer closed its worker or its context. It wraps ErrPeerFailed. A process
	// that exits without Close has died. Closing an endpoint fails nothing at the peer.
	ErrPeerClosed = fmt.Errorf("%w: it closed its worker", ErrPeerFailed)
	// ErrClosed: the endpoint or worker is closed. It wraps net.ErrClosed.
	ErrClosed error = &sentinel{ucs.ErrClosed, net.ErrClosed}
	// ErrTimeout: a bounded wait expired. It wraps os.ErrDeadlineExceeded.
	ErrTimeout error = &sentinel{ucs.ErrTimeout, os.ErrDeadlineExceeded}
	// ErrRejected: the peer rejected the message; the error text has its reason.
	ErrRejected = ucs.ErrRejected
	// ErrTooLong: the message exceeds the maximum length of this operation.
	ErrTooLong = ucs.ErrTooLong
	// ErrInvalid: an argument is outside its documented range.
	ErrInvalid = ucs.ErrInvalid
	// ErrStale: the result of a receive or fetch was consumed before.
	ErrStale = errors.New("result consumed before")
	// ErrBusy: an event or an operation is pending; progress, then retry.
	ErrBusy = ucs.ErrBusy
	// ErrNoMemory: the system refused an allocation.
	ErrNoMemory = ucs.ErrNoMemory
	// ErrRemoteAccess: the remote key does not permit the access, or was revoked.
	ErrRemoteAccess = ucs.ErrRemoteAccess
	// ErrUnreachable: no transport reaches the peer.
	ErrUnreachable = ucs.ErrUnreachable
	// ErrBufferExposed: the wait ended while an operation, or a peer, may still
	// access the buffer.
	ErrBufferExposed = ucs.ErrBufferExposed
	// ErrUnsupported wraps errors.ErrUnsupported.
	ErrUnsupported = ucs.ErrUnsupported
)

// sentinel is an error that matches two errors: that of ucs and that of the standard
// library.
type sentinel struct{ own, std error }

func (s *sentinel) Error() string   { return s.own.Error() }
func (s *sentinel) Unwrap() []error { return []error{s.own, s.std} }

// OpError is the failure of one operation. It is created on demand.
type OpError struct {
	// Op is the operation: "tag send", "flush".
	Op string
	// Peer is the remote worker, Lane the "transport/device" used to reach it; ""
	// if there is none.
	Peer, Lane string
	// Err wraps one of the sentinels.
	Err error
}

// Error returns "operation to peer over lane: reason".
func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Peer != "" {
		b.WriteString(" to " + e.Peer)
	}
	if e.Lane != "" {
		b.WriteString(" over " + e.Lane)
	}
	return b.String() + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *OpError) Unwrap() error { return e.Err }

// UnreachableError reports that no transport reaches a peer, with the reason of each
// transport.
type UnreachableError struct {
	Peer    string
	Refused []uct.Refusal
}

// Error lists every transport with its reason.
func (e *UnreachableError) Error() string {
	return "no transport reaches worker " + e.Peer + reasons(e.Refused)
}

// reasons formats refusals as the end of a sentence.
func reasons(rs []uct.Refusal) string {
	if len(rs) == 0 {
		return ""
	}
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = r.String()
	}
	return ": " + strings.Join(texts, "; ")
}

// Unwrap returns ErrUnreachable.
func (e *UnreachableError) Unwrap() error { return ErrUnreachable }

// Reasons of ErrInvalid and ErrUnsupported. A request that was refused at the call carries one as its
// status.
const (
	refusedFlags ucs.Status = 0x70 + iota
	refusedForms
	refusedPieces
	refusedForeign
	refusedFeature                      // FeatureTag; those of the other features follow
	refusedRMA     = refusedFeature + 1 // FeatureRMA
)

var (
	errFlags   = fmt.Errorf("unknown Flags, beyond %#x: %w", allFlags, ErrInvalid)
	errForms   = fmt.Errorf("ForceEager together with ForceRendezvous: %w", ErrInvalid)
	errFeature = [...]error{
		fmt.Errorf("the context was opened without FeatureTag: %w", ErrUnsupported),
		fmt.Errorf("the context was opened without FeatureRMA: %w", ErrUnsupported),
		fmt.Errorf("the context was opened without FeatureAtomics: %w", ErrUnsupported),
		fmt.Errorf("the context was opened without FeatureAM: %w", ErrUnsupported),
	}
	errForeign = fmt.Errorf("the endpoint belongs to another worker than the thread: %w", ErrInvalid)
	errPieces  = fmt.Errorf("more than %d pieces: %w", maxPieces, ErrInvalid)
)

// statusErr returns the sentinel of this package for a status.
func statusErr(st ucs.Status) error {
	if k := int(st) - int(refusedFeature); k >= 0 && k < len(errFeature) {
		return errFeature[k]
	}
	switch st {
	case refusedFlags:
		return errFlags
	case refusedForms:
		return errForms
	case refusedPieces:
		return errPieces
	case refusedForeign:
		return errForeign
	case ucs.Closed:
		return ErrClosed
	case ucs.Timeout:
		return ErrTimeout
	default:
		return st.Err()
	}
}
