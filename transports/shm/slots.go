package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// assignSlot assigns a slot to the connection: its doorbell word and its source number.
func (f *iface) assignSlot(e *ep) error {
	slot := f.NextSlot()
	if slot >= maxConns {
		return fmt.Errorf("%d connections of one worker: %w", slot, ucs.ErrNoResource)
	}
	if slot == len(f.pages)*slotsPerPage {
		if err := f.addPage(); err != nil {
			return err
		}
	}
	f.Insert(e, e.peer)
	// A doorbell equal to the previous owner's last one would not be noticed.
	p := f.pageOf(slot)
	p.lastSeen[slot%slotsPerPage] = 0
	atomic.StoreUint64(&p.doorbells[slot%slotsPerPage], 0)
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
	f.Remove(e, e.peer)
	f.selectDoorbells()
}
