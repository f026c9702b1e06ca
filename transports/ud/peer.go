package ud

import (
	"fmt"
	"slices"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// peer is another interface, while there are flows to or from it.
type peer struct {
	ah    verbs.AHID
	addr  address
	index uint32 // in iface.peers, and of arq
	// owed is a flow from it with an acknowledgement that may ride; nil: none.
	owed *arq.Receiver
	eps  []*endpoint
	ins  int // flows from it
	// parting are those that it has closed, each to be reported with the end of a flow
	// from it.
	parting []*endpoint
}

// handle is the address handle of a device, of all peers there.
type handle struct {
	verbs.AH
	peers int
}

// meet finds the peer of that address.
func (f *iface) meet(a *address) (*peer, error) {
	if p := f.names[a.name]; p != nil {
		if p.addr != *a { // a name can be chosen: it is no reason to send elsewhere
			return nil, fmt.Errorf("queue pair %#x has the name of %#x, a peer already: %w", uint32(a.qpn), uint32(p.addr.qpn), ucs.ErrInvalid)
		}
		return p, nil
	}
	if err := f.stock(); err != nil {
		return nil, err
	}
	k := a.port.AH(1)
	ah := f.ahs[k]
	if ah == nil {
		made, err := f.d.PD().CreateAH(k)
		if err != nil {
			return nil, err
		}
		ah = &handle{AH: made}
		f.ahs[k] = ah
	}
	ah.peers++
	p := &peer{addr: *a, ah: ah.ID()}
	if n := len(f.freeIdx) - 1; n >= 0 {
		p.index, f.freeIdx = f.freeIdx[n], f.freeIdx[:n]
		f.peers[p.index] = p
	} else {
		p.index = uint32(len(f.peers))
		f.peers = append(f.peers, p)
	}
	f.names[a.name] = p
	return p, nil
}

// part forgets a peer without flows.
func (f *iface) part(p *peer) {
	if len(p.eps) > 0 || p.ins > 0 || f.peers[p.index] != p {
		return
	}
	delete(f.names, p.addr.name)
	f.peers[p.index] = nil
	f.freeIdx = append(f.freeIdx, p.index)
	k := p.addr.port.AH(1)
	ah := f.ahs[k]
	if ah.peers--; ah.peers == 0 {
		f.flushPosts() // they name it
		delete(f.ahs, k)
		_ = ah.Close() // nothing can be wrong with it
	}
}

func (p *peer) drop(e *endpoint) {
	if i := slices.Index(p.eps, e); i >= 0 {
		p.eps = slices.Delete(p.eps, i, i+1)
	}
}
