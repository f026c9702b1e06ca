package shm

import (
	"fmt"

	"github.com/goucx/goucx/ucs/shmem"
)

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
	inboxSize   = 4096
	inboxHeads  = 64
	inboxSlots  = (inboxSize - inboxHeads) / 8
	maxInboxes  = 128
	maxConns    = maxInboxes * inboxSlots
	inboxStride = 4 // words that a pass polls; divides inboxSlots
)

// inbox is a doorbell page of this iface or of a peer.
type inbox struct {
	seg   *shmem.Segment
	armed *uint32
	heads []uint64
}

func newInbox() (*inbox, error) {
	seg, err := shmem.Create("goucx-inbox", inboxSize)
	if err != nil {
		return nil, fmt.Errorf("doorbell page: %w", err)
	}
	return viewInbox(seg), nil
}

// mapInbox maps a peer's doorbell page. It owns fd.
func mapInbox(fd int) (*inbox, error) {
	seg, err := shmem.Map(fd, inboxSize)
	if err != nil {
		shmem.CloseFDs(fd)
		return nil, fmt.Errorf("peer's doorbell page: %w", err)
	}
	if err := seg.CloseFD(); err != nil {
		return nil, err
	}
	return viewInbox(seg), nil
}

func viewInbox(seg *shmem.Segment) *inbox {
	armed, heads := inboxWords(seg.Bytes())
	return &inbox{seg: seg, armed: armed, heads: heads}
}

func (b *inbox) close() error { return b.seg.Close() }
