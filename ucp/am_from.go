package ucp

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup"
)

// fromOf gives the endpoint by which handlers answer the sender of s. There is
// one per peer; it is made anew where it failed or was closed.
func (w *Worker) fromOf(s *source) Endpoint {
	e := Endpoint{&w.t, s.from}
	if w.usable(e) {
		return e
	}
	if e.id = w.am.froms[s.peer]; !w.usable(e) {
		w.peers.Retain(s.peer)
		e = w.handle(w.newEpSlot(s.peer))
		if w.am.froms == nil {
			w.am.froms = make(map[wireup.PeerID]uint64)
		}
		w.am.froms[s.peer] = e.id
	}
	s.from = e.id
	return e
}

// nobody is the endpoint that answers who asked for no answer: one that is
// closed. What a peer sends must not have a handler stumble.
func (w *Worker) nobody() Endpoint { return Endpoint{&w.t, 0} }

// usable reports whether e is open and did not fail.
func (w *Worker) usable(e Endpoint) bool {
	k := w.endpoint(e)
	return k != 0 && w.eps[k].status == ucs.OK
}

// forgetFrom frees the endpoint that was made to answer peer, where it has failed
// and the program has bound nothing to it.
func (w *Worker) forgetFrom(peer wireup.PeerID) {
	id, ok := w.am.froms[peer]
	if !ok {
		return
	}
	k := w.endpoint(Endpoint{&w.t, id})
	switch {
	case k == 0:
	case w.eps[k].status == ucs.OK:
		return
	case w.cold[k] == nil || len(w.cold[k].owned) == 0:
		w.detach(k)
		w.freeEndpoint(k)
	}
	delete(w.am.froms, peer)
}
