package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
)

// A doorbell page is memory of one worker that its peers write, besides their rings:
//
//	0   armed word: 0, or the number of the sleep that the owner is in or about to
//	    begin, from minSleepID. A peer that wakes it signals its event, then resets the word from that
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

	// minSleepID is the lowest number of a sleep. It is above all values of a ring's polled word, so that a sender compares
	// the two words once to know whether it must notify the peer.
	minSleepID = ring.PolledMax + 1
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

// notify handles a send to a peer that does not poll this ring, that is armed, or
// whose doorbell page is not mapped yet.
//
//go:noinline
func (e *ep) notify() {
	if e.peerPage == nil {
		e.continueHandshake()
		if e.peerPage == nil {
			return // the peer polls the ring right after its ACCEPT
		}
	}
	e.ringDoorbell()
}

// ringDoorbell writes the doorbell word if the peer does not poll this ring, and wakes the
// peer if it is armed.
func (e *ep) ringDoorbell() {
	if e.peerPage == nil {
		return
	}
	if e.needsBarrier {
		e.Barrier()
	}
	if !e.tx.Polled() {
		e.f.stats.Inc(statDoorbells)
		atomic.StoreUint64(&e.peerPage.doorbells[e.peerSlot], e.tx.Head()^e.doorbellTag)
	}
	e.wakePeer()
}

// wakePeer wakes the peer if it is armed. It signals the event before it clears the armed
// word. A process that is stopped between the two steps then leaves a signalled event.
// In the opposite order, the peer would sleep on with a clear word, and no other
// sender would wake it.
func (e *ep) wakePeer() {
	if e.peerPage == nil {
		return
	}
	n := atomic.LoadUint32(e.peerPage.armed)
	if n == 0 {
		return
	}
	e.f.stats.Inc(statWoken)
	if err := e.peerEvent.Signal(); err != nil {
		e.f.FailLater(e, fmt.Errorf("wake peer: %w", err))
		return
	}
	atomic.CompareAndSwapUint32(e.peerPage.armed, n, 0) // fails if the peer has armed anew
}
