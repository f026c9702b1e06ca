package shm

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// takeSlot assigns a slot to the connection: its doorbell word and its source number.
func (f *iface) takeSlot(e *ep) error {
	if n := len(f.freeSlot); n > 0 {
		e.slot = f.freeSlot[n-1]
		f.freeSlot = f.freeSlot[:n-1]
		f.slots[e.slot] = e
	} else {
		if len(f.slots) >= maxConns {
			return fmt.Errorf("%d connections of one worker: %w", len(f.slots), ucs.ErrNoResource)
		}
		if len(f.slots) == len(f.pages)*inboxSlots {
			if err := f.addPage(); err != nil {
				return err
			}
		}
		e.slot = len(f.slots)
		f.slots = append(f.slots, e)
	}
	e.source = uint32(e.slot) + 1
	f.peers[e.peer] = append(f.peers[e.peer], e)
	// A doorbell equal to the previous owner's last one would not be noticed.
	p := f.pageOf(e.slot)
	p.seen[e.slot%inboxSlots] = 0
	atomic.StoreUint64(&p.heads[e.slot%inboxSlots], 0)
	f.shape()
	return nil
}

// addPage adds a doorbell page to the iface.
func (f *iface) addPage() error {
	in, err := newInbox()
	if err != nil {
		return err
	}
	f.pages = append(f.pages, page{in, make([]uint64, inboxSlots)})
	f.look() // an armed worker has not armed this page
	return nil
}

// pageOf returns the doorbell page that holds slot.
func (f *iface) pageOf(slot int) page { return f.pages[slot/inboxSlots] }

// forget removes the connection from all lists that passes poll, and frees its slot.
func (f *iface) forget(e *ep) {
	f.chill(e)
	f.slots[e.slot] = nil
	es := f.peers[e.peer]
	if i := slices.Index(es, e); len(es) > 1 {
		f.peers[e.peer] = slices.Delete(es, i, i+1)
	} else {
		delete(f.peers, e.peer)
	}
	f.freeSlot = append(f.freeSlot, e.slot)
	f.shape()
}
