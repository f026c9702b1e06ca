package wireup

import "github.com/goucx/goucx/uct"

// Find returns the peer with this worker UUID.
func (t *Table) Find(worker uct.UUID) (PeerID, bool) {
	_, p := t.index.find(t.index.hash(worker), worker, t.UUID)
	return p, p != 0
}
