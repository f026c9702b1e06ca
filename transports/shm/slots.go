package shm

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// takeSlot gives the connection its place in the inbox.
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
	// What the slot's last owner left would hide a hint that is equal to it.
	p := f.pageOf(e.slot)
	p.seen[e.slot%inboxSlots] = 0
	atomic.StoreUint64(&p.heads[e.slot%inboxSlots], 0)
	f.shape()
	return nil
}

func (f *iface) addPage() error {
	in, err := newInbox()
	if err != nil {
		return err
	}
	f.pages = append(f.pages, page{in, make([]uint64, inboxSlots)})
	f.look() // a sleeper has not armed this one
	return nil
}

func (f *iface) pageOf(slot int) page { return f.pages[slot/inboxSlots] }

// forget takes the connection out of everything that looks at it.
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
