package shm

import (
	"fmt"

	"github.com/goucx/goucx/ucs/shmem"
)

// An inbox page is what peers write into besides their rings:
//
//	0   armed word: 0, or the number of the sleep that the owner is in or about to
//	    begin; whoever wakes it raises its event, then takes that number back
//	64  head words, 8 bytes each, one per connection: the number of the last
//	    message, written only while the owner does not watch the ring
//
// Head words are hints: a lost one costs time, never a message.
const (
	inboxSize   = 4096
	inboxHeads  = 64
	inboxSlots  = (inboxSize - inboxHeads) / 8
	maxInboxes  = 128
	maxConns    = maxInboxes * inboxSlots
	inboxStride = 4 // slots looked at per pass; divides inboxSlots
)

// inbox is one page, ours or a peer's.
type inbox struct {
	seg   *shmem.Segment
	armed *uint32
	heads []uint64
}

func newInbox() (*inbox, error) {
	seg, err := shmem.Create("goucx-inbox", inboxSize)
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	return viewInbox(seg), nil
}

// mapInbox takes over fd.
func mapInbox(fd int) (*inbox, error) {
	seg, err := shmem.Map(fd, inboxSize)
	if err != nil {
		shmem.CloseFDs(fd)
		return nil, fmt.Errorf("peer's inbox: %w", err)
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
