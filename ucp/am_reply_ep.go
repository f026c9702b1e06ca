package ucp

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup"
)

// fromEndpoint returns the endpoint by which handlers reply to the sender of s. There is one
// per peer. If it has failed or was closed, fromEndpoint creates a new one.
func (w *Worker) fromEndpoint(rx *rxConn) Endpoint {
	e := Endpoint{&w.t, rx.fromEp}
	if w.usable(e) {
		return e
	}
	if e.id = w.am.fromEps[rx.peer]; !w.usable(e) {
		w.peers.Retain(rx.peer)
		e = w.handle(w.newEpSlot(rx.peer))
		if w.am.fromEps == nil {
			w.am.fromEps = make(map[wireup.PeerID]uint64)
		}
		w.am.fromEps[rx.peer] = e.id
	}
	rx.fromEp = e.id
	return e
}

// closedEndpoint returns the From of a message whose sender did not set WantReply. It is a
// closed endpoint, so a handler that replies to it gets ErrClosed and does not crash.
func (w *Worker) closedEndpoint() Endpoint { return Endpoint{&w.t, 0} }

// usable reports whether e is open and has not failed.
func (w *Worker) usable(e Endpoint) bool {
	k := w.endpoint(e)
	return k != 0 && w.eps[k].status == ucs.OK
}

// dropFromEndpoint removes the reply endpoint to peer if it has failed. It frees the endpoint
// unless the program has bound a resource to it.
func (w *Worker) dropFromEndpoint(peer wireup.PeerID) {
	id, ok := w.am.fromEps[peer]
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
	delete(w.am.fromEps, peer)
}
