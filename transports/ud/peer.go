package ud

import (
	"slices"

	"github.com/goucx/goucx/transports/ud/arq"
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

// ahKey is what an address handle depends on.
type ahKey struct {
	gid   verbs.GID
	lid   uint16
	goucx bool
}

// meet finds the peer of that address.
func (f *iface) meet(a *address) (*peer, error) {
	if p := f.names[a.name]; p != nil {
		p.addr = *a
		return p, nil
	}
	if err := f.stock(); err != nil {
		return nil, err
	}
	k := ahKey{a.port.GID, a.port.LID, a.port.Goucx}
	ah := f.ahs[k]
	if ah == nil {
		var err error
		if ah, err = f.d.PD().CreateAH(a.port.AH(1)); err != nil {
			return nil, err
		}
		f.ahs[k] = ah
	}
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
}

func (p *peer) drop(e *endpoint) {
	if i := slices.Index(p.eps, e); i >= 0 {
		p.eps = slices.Delete(p.eps, i, i+1)
	}
}
