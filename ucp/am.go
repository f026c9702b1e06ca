package ucp

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// AMID says which handler an active message is for: any number, agreed between
// the programs.
type AMID uint16

// MaxAMHeader is the longest header of an active message in bytes.
const MaxAMHeader = 512

// AMHandler takes active messages in. It runs inside progress, outside of locks,
// on the goroutine that progresses, one handler of a worker at a time. It may
// post operations, also on endpoints that it makes, close endpoints and change
// handlers. It must not wait for its own worker: Wait answers ErrInvalid at once
// and Progress does nothing. It must not panic: a worker whose handler did cannot
// be used any more. Its Close returns an error and leaves it open.
type AMHandler func(m *AM)

// AM is an active message as its handler sees it. It and its slices are the
// worker's and live until the handler returns, then they are used again; a
// handler that wants more of it calls Keep. Builds with the race detector poison
// it.
type AM struct {
	// ID that the message was sent to.
	ID AMID
	// Header as it was sent, at most MaxAMHeader bytes.
	Header []byte
	// Data as it was sent; nil with Rendezvous.
	Data []byte
	// From is an endpoint to the sender where that set WantReply; else it is one
	// that answers ErrClosed. It is the worker's, one per peer, and good until the
	// peer fails, the worker closes, or the program closes it.
	From Endpoint
	// Rendezvous: the data is still with the sender. Keep the message, then
	// Kept.RecvInto fetches it and Kept.Refuse turns it down; the data of a message
	// that is not kept is not wanted, and its sender's request ends well. Which
	// messages come so is the sender's choice, by length and flags.
	Rendezvous bool
	// Len is the length of the data in bytes.
	Len int

	w     *Worker
	place amPlace
	kept  *kept // where Keep was called
}

// HandleAM has h take the active messages with this id from now on, in place of
// the handler before; nil removes it. Messages without a handler are dropped and
// counted; a rendezvous among them is refused.
func (w *Worker) HandleAM(id AMID, h AMHandler) error {
	w.t.lock()
	defer w.t.unlock()
	if w.closing {
		return fmt.Errorf("handle active message %d: %w", id, ErrClosed)
	}
	w.am.set(id, h)
	return nil
}

// AMSend sends header and data as one message to the peer's handler of id.
// header, at most MaxAMHeader bytes, is copied before AMSend returns; data is
// ours until the request ends.
// hot: BenchmarkAMPair
//
//go:nosplit
func (e Endpoint) AMSend(id AMID, header, data []byte) Request {
	if l := e.lane(); len(data) <= l.short && len(header) == 0 {
		if len(data) == 8 { // as TagSend
			if l.ep.AMUint64(amUser, uint64(id), binary.LittleEndian.Uint64(data)) == ucs.OK {
				return Request{}
			}
		} else if l.ep.AMShort(amUser, uint64(id), data) == ucs.OK {
			return Request{}
		}
	}
	return e.amSendSlow(id, header, data, 0)
}

// AMSendWith is AMSend with wishes.
func (e Endpoint) AMSendWith(id AMID, header, data []byte, o Opts) Request {
	return e.amSendSlow(id, header, data, o.Flags)
}
