package ucp

import (
	"go.uber.org/zap"

	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// amState is the active-message state of a worker.
type amState struct {
	// handlers holds the handlers, indexed by the upper and then the lower byte of the
	// id.
	handlers      [256]*handlerPage
	m             AM         // passed to the handler
	inHandler     bool       // a handler runs
	multi         bool       // the worker's mode is ThreadMulti
	closeEndpoint NotifyFunc // closes the endpoint in the cookie

	// failureCalls holds the pending calls of OnFailure. They run after each callback, so
	// it is in the state that handlers check.
	failureCalls []failureCall

	vec      [1]uct.Vec // of the message being sent by AMZcopy
	retainer retainer
	prefetch prefetchQueue

	fromEps map[wireup.PeerID]uint64 // AM.From by peer
	unknown map[AMID]struct{}        // ids without a handler that were logged
}

type handlerPage [256]AMHandler

// noHandlers is the shared empty page. It is never written.
var noHandlers handlerPage

func (a *amState) init(w *Worker, multi bool) {
	for i := range a.handlers {
		a.handlers[i] = &noHandlers
	}
	a.m.w = w
	a.m.From = w.closedEndpoint()
	a.multi = multi
	a.closeEndpoint = func(c Completion) { _ = Endpoint{&w.t, c.Cookie}.closeNow(ErrClosed) }
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
	if h != nil {
		delete(a.unknown, id) // a later removal is logged again
	}
}

// handler returns the handler of the message with this header word, nil if there is
// none.
func (a *amState) handler(word uint64) AMHandler {
	return a.handlers[uint8(word>>8)][uint8(word)]
}

// unknownAM counts a message without a handler. It logs the first one of each id.
//
//go:noinline
func (w *Worker) unknownAM(id AMID) {
	w.count.Inc(cntUnhandled)
	if _, logged := w.am.unknown[id]; logged {
		return
	}
	if w.am.unknown == nil {
		w.am.unknown = make(map[AMID]struct{})
	}
	w.am.unknown[id] = struct{}{}
	w.ctx.log.Warn("active messages dropped: no handler", zap.Uint16("id", uint16(id)))
}
