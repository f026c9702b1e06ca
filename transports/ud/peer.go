package ud

import (
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// peer is a remote interface to or from which there are flows.
type peer struct {
	ah      verbs.AHID
	awaited bool // something waits for the peer, as the last checkPeers found
	addr    address
	index   uint32 // in iface.peers; arq's name of the peer
	numRx   int32  // flows from the peer
	// pendingACK is a flow from the peer with a pending ACK that can be piggybacked; nil: none.
	pendingACK *arq.Receiver
	eps        []*endpoint
	// closedEPs are endpoints that the peer has closed. Each is reported together with the
	// end of a flow from the peer.
	closedEPs []*endpoint
	silence   nic.Silence
}

// addrHandle is an address handle, shared by all peers with the same port address.
type addrHandle struct {
	verbs.AH
	peers int
}

// getPeer returns the peer with address a and creates it if necessary.
func (f *iface) getPeer(a *address) (*peer, error) {
	if p := f.peersByName[a.name]; p != nil {
		if p.addr != *a { // Anyone can send a Connect with a forged name. Packets must not be redirected for it.
			return nil, fmt.Errorf("queue pair %#x has the same name as peer %#x: %w", uint32(a.QPN), uint32(p.addr.QPN), ucs.ErrInvalid)
		}
		return p, nil
	}
	// The first peer causes the device to be watched, the send slots to be allocated and the other receives to
	// be posted.
	if err := f.d.Watch(&f.watcher); err != nil {
		return nil, err
	}
	if err := f.tx.alloc(f.thread.PD, f.sendSlots, f.self.Port.MTU.Bytes()); err != nil {
		return nil, err
	}
	if f.rx.Free() > 0 {
		f.postReceives(f.rx.Free())
	}
	k := f.d.AH(f.port, &a.Port)
	ah := f.ahs[k]
	if ah == nil {
		made, err := f.d.PD().CreateAH(k)
		if err != nil {
			return nil, err
		}
		ah = &addrHandle{AH: made}
		f.ahs[k] = ah
	}
	ah.peers++
	p := &peer{addr: *a, ah: ah.ID()}
	if n := len(f.freePeers) - 1; n >= 0 {
		p.index, f.freePeers = f.freePeers[n], f.freePeers[:n]
		f.peers[p.index] = p
	} else {
		p.index = uint32(len(f.peers))
		f.peers = append(f.peers, p)
	}
	f.peersByName[a.name] = p
	return p, nil
}

// removeUnusedPeer removes a peer that has no flows left.
func (f *iface) removeUnusedPeer(p *peer) {
	if len(p.eps) > 0 || p.numRx > 0 || f.peers[p.index] != p {
		return
	}
	delete(f.peersByName, p.addr.name)
	f.peers[p.index] = nil
	f.freePeers = append(f.freePeers, p.index)
	k := f.d.AH(f.port, &p.addr.Port)
	ah := f.ahs[k]
	if ah.peers--; ah.peers == 0 {
		f.flushPosts() // posted work requests refer to the address handle
		delete(f.ahs, k)
		_ = ah.Close() // cannot fail
	}
}

// peerByQPN returns a peer by its queue pair number. It searches all peers, so the number of
// searches between two readings of the clock is bounded.
func (f *iface) peerByQPN(from verbs.QPN) *peer {
	if f.peerSearches++; f.peerSearches > 8 {
		return nil
	}
	for _, p := range f.peersByName {
		if p.addr.QPN == from {
			return p
		}
	}
	return nil
}
