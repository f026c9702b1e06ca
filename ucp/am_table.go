package ucp

import (
	"go.uber.org/zap"

	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// amState is what a worker needs for active messages.
type amState struct {
	// pages are the handlers, by the upper and then the lower byte of the id.
	pages  [256]*amPage
	m      AM         // of the handler that runs
	inside bool       // a handler runs
	multi  bool       // the worker's mode is ThreadMulti
	shut   NotifyFunc // closes the endpoint that the cookie names

	// failed are the calls of OnFailure that are due. They run after each callback, so
	// those of handlers look at it.
	failed []failedCall

	vec   [1]uct.Vec // of a message on its way out
	keep  keeper
	fetch fetchQueue

	froms   map[wireup.PeerID]uint64 // AM.From by the peer it leads to
	unknown map[AMID]struct{}        // ids without a handler that were logged
}

type amPage [256]AMHandler

// noHandlers is the page of which nothing is set. It is never written.
var noHandlers amPage

func (a *amState) init(w *Worker, multi bool) {
	for i := range a.pages {
		a.pages[i] = &noHandlers
	}
	a.m.w = w
	a.m.From = w.nobody()
	a.multi = multi
	a.shut = func(c Completion) { _ = Endpoint{&w.t, c.Cookie}.shut(ErrClosed) }
	a.keep.w = w
}

func (a *amState) set(id AMID, h AMHandler) {
	p := &a.pages[id>>8]
	if *p == &noHandlers {
		if h == nil {
			return
		}
		*p = new(amPage)
	}
	(*p)[uint8(id)] = h
	if h != nil {
		delete(a.unknown, id) // removed again, it is worth a line again
	}
}

// handler gives the handler of the message with this header word, nil where
// there is none.
func (a *amState) handler(word uint64) AMHandler {
	return a.pages[uint8(word>>8)][uint8(word)]
}

// unknownAM counts a message that nobody handles; the first of each id is
// logged.
//
//go:noinline
func (w *Worker) unknownAM(id AMID) {
	w.count.Inc(cntUnhandled)
	if _, told := w.am.unknown[id]; told {
		return
	}
	if w.am.unknown == nil {
		w.am.unknown = make(map[AMID]struct{})
	}
	w.am.unknown[id] = struct{}{}
	w.ctx.log.Warn("active messages dropped: no handler", zap.Uint16("id", uint16(id)))
}
