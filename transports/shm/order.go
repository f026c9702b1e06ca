package shm

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup/machine"
)

// What a side sends on a connection after it closed another one with the same peer is
// received after the last message of the closed one.
//
// The sender makes connections to a peer in order: the hello of one is sent before the
// next is dialled (ep.behind). It sends nothing on a connection of the peer's making that
// it accepted before the peer is known to have accepted the closed one (passedBy,
// closing). The receiver takes hellos in order (welcomeOlder). Before it reads a
// connection for the first time, it delivers what the others with that peer hold
// (startReads). It waits for nothing, so a peer that ends or stops holds up nobody.

// closing reports whether this side closed a connection to the peer that the peer may
// not have accepted yet.
func (f *iface) closing(peer ifaceName) bool {
	for _, e := range f.peers[peer] {
		if e.status == ucs.Closed && !e.done() {
			return true
		}
	}
	return false
}

// passedBy keeps endpoints from the connections that the peer made so far. The peer
// may read them already, and a connection to it was closed.
func (f *iface) passedBy(peer ifaceName) {
	for _, e := range f.peers[peer] {
		if !e.initiated {
			e.separate = true
		}
	}
}

// startLater has the next service read the connection for the first time.
func (e *ep) startLater() {
	e.f.starting = append(e.f.starting, e)
	e.f.look()
}

// startReads begins to read connections, in the order of their hellos. All that the
// peer sent before them on others lies in the rings, and is delivered first: at most a
// ring's worth of each.
func (f *iface) startReads() (n int) {
	es := f.starting
	f.starting = nil
	var last *ep
	for _, e := range es {
		if e.released || e.dead != nil || e.reads != machine.None {
			continue
		}
		if last != nil && last.peer == e.peer {
			n += f.drainAll(last) // the others were drained for it
		} else {
			for i := 0; i < len(f.peers[e.peer]); i++ { // callbacks may change them
				n += f.drainAll(f.peers[e.peer][i])
			}
		}
		e.readIn(e.m.In())
		last = e
	}
	return n
}
