package shm

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// assignSlot assigns a slot to the connection: its doorbell word and its source number.
func (f *iface) assignSlot(e *ep) error {
	if n := len(f.freeSlot); n > 0 {
		e.slot = f.freeSlot[n-1]
		f.freeSlot = f.freeSlot[:n-1]
		f.slots[e.slot] = e
	} else {
		if len(f.slots) >= maxConns {
			return fmt.Errorf("%d connections of one worker: %w", len(f.slots), ucs.ErrNoResource)
		}
		if len(f.slots) == len(f.pages)*slotsPerPage {
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
	p.lastSeen[e.slot%slotsPerPage] = 0
	atomic.StoreUint64(&p.doorbells[e.slot%slotsPerPage], 0)
	f.selectDoorbells()
	return nil
}

// addPage adds a doorbell page to the iface.
func (f *iface) addPage() error {
	in, err := newDoorbellPage()
	if err != nil {
		return err
	}
	f.pages = append(f.pages, ownPage{in, make([]uint64, slotsPerPage)})
	f.requestService() // an armed worker has not armed this page
	return nil
}

// pageOf returns the doorbell page that holds slot.
func (f *iface) pageOf(slot int) ownPage { return f.pages[slot/slotsPerPage] }

// unregister removes the connection from all lists that passes poll, and frees its slot.
func (f *iface) unregister(e *ep) {
	f.demote(e)
	f.slots[e.slot] = nil
	es := f.peers[e.peer]
	if i := slices.Index(es, e); len(es) > 1 {
		f.peers[e.peer] = slices.Delete(es, i, i+1)
	} else {
		delete(f.peers, e.peer)
	}
	f.freeSlot = append(f.freeSlot, e.slot)
	f.selectDoorbells()
}
