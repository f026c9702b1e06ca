package shm

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup/machine"
)

// Invariant: a message on a connection is received after all messages on connections to
// the same peer that its sender closed before.
//
//   - The sender connects in order. It sends OPEN on one connection before it dials the
//     next to the same peer (ep.dialAfter).
//   - The sender uses no connection that the peer initiated while the peer may not have
//     accepted the closed connection (ep.Close, hasClosing).
//   - The receiver handles OPEN messages in order (acceptOpen).
//   - Before the receiver first reads a connection, it drains its other connections with
//     that peer (startReads).
//
// The receiver never waits, so a peer that ends or stops blocks no other peer.

// hasClosing reports whether this side has closed a connection to the peer that the peer
// may not have accepted yet.
func (f *iface) hasClosing(peer ifaceName) bool {
	for _, e := range f.ByPeer[peer] {
		if e.status == ucs.Closed && !e.releasable() {
			return true
		}
	}
	return false
}

// startReads starts to read the queued connections in the order of their OPEN messages.
// Before each it drains the peer's other connections. Messages that the peer sent
// earlier lie in their rings: at most one ring's capacity each.
func (f *iface) startReads() (n int) {
	es := f.firstReads
	f.firstReads = nil
	var last *ep
	for _, e := range es {
		if e.Life.Over() || e.rxPair != machine.None {
			continue
		}
		if last != nil && last.peer == e.peer {
			n += f.drainRings(last) // the others were drained before last
		} else {
			for i := 0; i < len(f.ByPeer[e.peer]); i++ { // callbacks may change the slice
				n += f.drainRings(f.ByPeer[e.peer][i])
			}
		}
		e.switchRx(e.M.RxPair())
		last = e
	}
	return n
}
