package shm

import (
	"math"
	"sync"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/uct"
)

// copyWays are the ways by which an iface copies long messages between memory and memory: those that the settings and
// the system permit. 0: all go through the ring. Each side of a connection has its own; a copy takes what both have.
type copyWays uint8

const (
	copiesByMapping copyWays = 1 << iota // from and to memory of Domain.Allocate, as mapped
	copiesByRead                         // with process_vm_readv, as the receiver
	copiesByWrite                        // with process_vm_writev, as the sender
	copiesByBoth                         // both sides of a connection copy, if both poll
)

// tryCopy is why the system permits no copies by system calls between processes. Whether it permits them for a certain
// peer is known after the first one.
var tryCopy = sync.OnceValues(platform.TryCopy)

// copiesOf returns what the settings and the system permit.
func copiesOf(set *config.Set) (c copyWays, a uct.FetchAttr) {
	const ring, both = "through the ring, copied by the sender and by the receiver", ", and by the sender too while it polls"
	way := singleCopy.Get(set)
	setting := settingText(set, singleCopy.Name(), way)
	a.Heap, a.Allocated = uct.Fetch{Way: ring, Reason: setting}, uct.Fetch{Way: ring, Reason: setting}
	if way == "none" {
		return 0, a
	}
	by := ""
	if cooperativeCopy.Get(set) {
		c, by = copiesByBoth, both
	}
	from := func(f *uct.Fetch, thresh *config.Row[config.Bytes], how, reason string) {
		f.Way, f.Reason = how, reason
		n := thresh.Get(set)
		if f.Setting = settingText(set, thresh.Name(), n); n < math.MaxInt {
			f.From = int(n) + 1
		}
	}
	if way != "mapped" {
		read, write := tryCopy()
		switch {
		case read != nil:
			a.Heap.Reason = read.Error()
		case write != nil:
			c |= copiesByRead
			from(&a.Heap, fetchThresh, "copied by the receiver with process_vm_readv", "its sender can copy nothing: "+write.Error())
		default:
			c |= copiesByRead | copiesByWrite
			from(&a.Heap, fetchThresh, "copied by the receiver with process_vm_readv"+by, "the system permits it, and "+setting)
		}
		if read == nil && platform.OwnPIDNamespace() {
			a.Heap.Reason += "; to a peer outside of this process's pid namespace it goes through the ring"
		}
		a.Allocated = a.Heap
	}
	if way != "cma" {
		c |= copiesByMapping
		from(&a.Allocated, fetchMappedThresh, "copied by the receiver from its mapping of the memory"+by, setting)
	}
	if c == copiesByBoth {
		c = 0 // no side can copy
	}
	return c, a
}
