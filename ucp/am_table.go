package ucp

import (
	"go.uber.org/zap"

	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// amState is the active-message state of a worker.
type amState struct {
	// pages holds the handlers, indexed by the upper and then the lower byte of the
	// id.
	pages  [256]*amPage
	m      AM         // passed to the handler
	inside bool       // a handler runs
	multi  bool       // the worker's mode is ThreadMulti
	shut   NotifyFunc // closes the endpoint in the cookie

	// failed holds the pending calls of OnFailure. They run after each callback, so
	// it is in the state that handlers check.
	failed []failedCall

	vec   [1]uct.Vec // of the message being sent by AMZcopy
	keep  keeper
	fetch fetchQueue

	froms   map[wireup.PeerID]uint64 // AM.From by peer
	unknown map[AMID]struct{}        // ids without a handler that were logged
}

type amPage [256]AMHandler

// noHandlers is the shared empty page. It is never written.
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
		delete(a.unknown, id) // a later removal is logged again
	}
}

// handler returns the handler of the message with this header word, nil if there is
// none.
func (a *amState) handler(word uint64) AMHandler {
	return a.pages[uint8(word>>8)][uint8(word)]
}

// unknownAM counts a message without a handler. It logs the first one of each id.
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
