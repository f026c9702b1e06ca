package conn

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// Facts is a set of facts about a connection.
type Facts uint16

const (
	// Opened: an endpoint is open on the connection.
	Opened Facts = 1 << iota
	// Initiated: this side has begun the connection, not the peer.
	Initiated
	// Separate: the connection is never merged with one that the peer initiates at the same time.
	Separate
	// Counted: the connection counts as active, because its peer may send on it.
	Counted
	// RxEndReported: the layer above knows that the peer sends no more.
	RxEndReported
	// Unacked: operations of the endpoint were not acknowledged when the connection ended.
	Unacked
	inService
	// Own is the first of the facts that a transport defines for itself.
	Own
)

// Has reports whether all facts of x are in the set.
func (f *Facts) Has(x Facts) bool { return *f&x == x }

// Add adds x and reports whether it is new.
func (f *Facts) Add(x Facts) bool {
	was := *f
	*f |= x
	return *f != was
}

// Drop removes x and reports whether it was in the set.
func (f *Facts) Drop(x Facts) bool {
	was := *f
	*f &^= x
	return *f != was
}

// Conn is the common part of a connection.
type Conn struct {
	// Source is the number of the connection in messages that are passed to the layer above: its
	// slot plus 1.
	Source uint32
	Facts
	Life Life
	// Err is why the connection has failed; nil: it has not.
	Err error
	// M decides about the steps of the connection.
	M machine.Machine
	Activity
}

// Connection is a connection of a transport, with an embedded Conn.
type Connection interface {
	comparable
	uct.Endpoint
	// Suspend proposes to the peer to suspend the connection. The peer may decline.
	Suspend()
	// HasReceived reports whether the peer has sent a message on the connection.
	HasReceived() bool
	conn() *Conn
}

func (c *Conn) conn() *Conn { return c }

// Slot returns the index of the connection in Table.Slots.
func (c *Conn) Slot() int { return int(c.Source) - 1 }

// Adoptable reports whether an endpoint may use the connection, which the peer has initiated.
func (c *Conn) Adoptable() bool {
	return c.Facts&(Opened|Initiated) == 0 && c.Life <= HalfOpen && !c.M.Closing() && !c.M.PeerClosed()
}

// Fail ends the connection with err. It reports whether the connection had not ended before.
func (c *Conn) Fail(err error) bool {
	if !c.Life.Step(Fail) {
		return false
	}
	c.Err = err
	return true
}

// NewID returns a random identifier of a connection. It is never 0.
func NewID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// Reasons why a connection fails.
var (
	// ErrPeerClosed: the peer has closed its interface. The end is reported without an error.
	ErrPeerClosed = PeerFailed("it closed its interface")
	// ErrDisconnected: Disconnect was called.
	ErrDisconnected = PeerFailed("this side ended the connection")
	// ErrProtocol: the connection machine got a message that it does not expect.
	ErrProtocol = PeerFailed("its connection messages violate the protocol")
)

// PeerFailed returns an ErrPeerFailed with the cause.
func PeerFailed(what string) error { return fmt.Errorf("%w: %s", ucs.ErrPeerFailed, what) }

// IsFailure reports whether an end for reason err counts as a failure, and is reported as one.
func IsFailure(err error) bool { return err != nil && !errors.Is(err, ErrPeerClosed) }
