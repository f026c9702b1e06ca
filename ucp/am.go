package ucp

import (
	"encoding/binary"
	"fmt"

	"go.uber.org/zap"

	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// AMID is the id of an active message. It selects the handler at the receiver. Both
// programs have to agree on its values.
type AMID uint16

// MaxAMHeader is the maximum length of an active message header in bytes.
const MaxAMHeader = 512

// AMHandler handles active messages. It runs in progress, outside of locks, on the
// goroutine that progresses the worker. A worker runs one handler at a time. A handler
// may post operations, create and close endpoints, and change handlers. It must not
// wait for its own worker: Wait returns ErrInvalid immediately and Progress does
// nothing. It must not panic. After a panic the worker cannot be used any more, and its
// Close returns an error and leaves it open.
type AMHandler func(m *AM)

// AM is an active message as its handler receives it. The worker owns the AM and its
// slices. They are valid until the handler returns and are then reused. A handler that
// needs the message longer calls Retain. Builds with the race detector poison the AM
// after the handler.
type AM struct {
	// ID is the id that the sender specified.
	ID AMID
	// Header is the message header, at most MaxAMHeader bytes.
	Header []byte
	// Data is the payload. It is nil if Rendezvous is set.
	Data []byte
	// From is an endpoint to the sender if the sender set WantReply. Otherwise
	// operations on it return ErrClosed. The worker owns From and has one per peer.
	// It is valid until the peer fails, the worker closes, or the program closes
	// it.
	From Endpoint
	// Rendezvous reports that the data is still at the sender. The handler keeps
	// the message; then RetainedAM.RecvInto fetches the data, or RetainedAM.Refuse rejects it.
	// Without Retain the data is discarded and the sender's request completes without
	// an error. The sender selects rendezvous by length and flags.
	Rendezvous bool
	// Len is the length of the data in bytes.
	Len int

	w        *thread
	storage  amStorage
	retained *retainedMsg // set by Retain
}

// HandleAM installs h as the handler of id and replaces the previous handler. A nil h
// removes the handler. Messages without a handler are dropped and counted. A rendezvous
// without a handler is rejected.
func (w *Worker) HandleAM(id AMID, h AMHandler) error {
	w.t.lock()
	defer w.t.unlock()
	if w.t.life.closing() {
		return fmt.Errorf("handle active message %d: %w", id, ErrClosed)
	}
	if st := w.t.ctx.features.has(FeatureAM); st != ucs.OK {
		return fmt.Errorf("handle active message %d: %w", id, statusErr(st))
	}
	w.t.am.set(id, h)
	return nil
}

// AMSend sends header and data as one message to the peer's handler of id. header, at
// most MaxAMHeader bytes, is copied before AMSend returns. The library owns data until
// the request completes.
//
//hot:bench BenchmarkAMPair
//go:nosplit
func (e Endpoint) AMSend(id AMID, header, data []byte) Request {
	if l := e.lane(); len(data) <= l.amShort && len(header) == 0 {
		if len(data) == 8 { // as in TagSend
			if l.ep.AMUint64(wire.User, uint64(id), binary.LittleEndian.Uint64(data)) == ucs.OK {
				return Request{}
			}
		} else if l.ep.AMShort(wire.User, uint64(id), data) == ucs.OK {
			return Request{}
		}
	}
	return e.amSendSlow(id, header, data, 0)
}

// AMSendWith is AMSend with options.
func (e Endpoint) AMSendWith(id AMID, header, data []byte, o Opts) Request {
	return e.amSendSlow(id, header, data, o.Flags)
}

// amState is the active-message state of a worker.
type amState struct {
	// handlers holds the handlers, indexed by the upper and then the lower byte of the
	// id.
	handlers      [256]*handlerPage
	fast          handlerPage // of the ids below 256, called without the lock; empty with ThreadMulti
	m             AM          // passed to the handler
	inHandler     bool        // a handler runs
	multi         bool        // the worker's mode is ThreadMulti
	closeEndpoint NotifyFunc  // closes the endpoint in the cookie

	vec      [1]uct.Vec // of the message being sent by AMZcopy
	retainer retainer
	prefetch prefetchQueue

	fromEps map[wireup.PeerID]uint64 // AM.From by peer
	unknown map[AMID]struct{}        // ids without a handler that were logged
}

type handlerPage [256]AMHandler

// noHandlers is the shared empty page. It is never written.
var noHandlers handlerPage

func (a *amState) init(w *thread, multi bool) {
	for i := range a.handlers {
		a.handlers[i] = &noHandlers
	}
	a.m.w = w
	a.m.From = Endpoint{w, 0}
	a.multi = multi
	a.closeEndpoint = func(c Completion) { _ = Endpoint{w, c.Cookie}.closeNow(ErrClosed, nil) }
	a.retainer.w = w
}

func (a *amState) set(id AMID, h AMHandler) {
	p := &a.handlers[id>>8]
	if *p == &noHandlers {
		if h == nil {
			return
		}
		*p = new(handlerPage)
	}
	(*p)[uint8(id)] = h
	if id < AMID(len(a.fast)) && !a.multi {
		a.fast[id] = h
	}
	if h != nil {
		delete(a.unknown, id) // a later removal is logged again
	}
}

// handler returns the handler of the message with this header word, nil if there is
// none.
func (a *amState) handler(word uint64) AMHandler {
	return a.handlers[uint8(word>>8)][uint8(word)]
}

// dropUnknown counts a message without a handler. It logs the first one of each id.
//
//go:noinline
func (a *amState) dropUnknown(w *thread, id AMID) {
	w.count.Inc(cntUnhandled)
	if _, logged := a.unknown[id]; logged {
		return
	}
	if a.unknown == nil {
		a.unknown = make(map[AMID]struct{})
	}
	a.unknown[id] = struct{}{}
	w.ctx.log.Warn("active messages dropped: no handler", zap.Uint16("id", uint16(id)))
}
