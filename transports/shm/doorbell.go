package shm

import "github.com/goucx/goucx/ucs/shmem"

// A doorbell page is memory of one worker that its peers write, besides their rings:
//
//	0   armed word: 0, or the number of the sleep that the owner is in or about to
//	    begin. A peer that wakes it signals its event, then resets the word from that
//	    number to 0.
//	64  doorbell words, 8 bytes each, one per connection: the number of the last
//	    message. The peer writes it only while the owner does not poll the ring.
//
// A lost doorbell costs latency but never a message: scan polls all rings.
const (
	pageSize        = 4096
	doorbellsOffset = 64
	slotsPerPage    = (pageSize - doorbellsOffset) / 8
	maxPages        = 128
	maxConns        = maxPages * slotsPerPage
	doorbellStride  = 4 // words that a pass polls; divides slotsPerPage
)

// doorbellPage is a doorbell page of this iface or of a peer.
type doorbellPage struct {
	seg       *shmem.Segment
	armed     *uint32
	doorbells []uint64
}

// newDoorbellPage returns the doorbell page in seg, which has pageSize bytes.
func newDoorbellPage(seg *shmem.Segment) *doorbellPage {
	armed, heads := pageWords(seg.Bytes())
	return &doorbellPage{seg: seg, armed: armed, doorbells: heads}
}
