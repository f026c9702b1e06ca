package shm

import (
	"fmt"
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

// copyCost is the time of a copy by system call beside its bytes: 0.65 us on one kind of machine, 1.4 us on another.
var copyCost = sync.OnceValue(platform.CopyCost)

// FetchThresh returns the longest message from memory of the program that is sent through the ring, in bytes, and the
// setting UCX_SHM_FETCH_THRESH that says so. With auto it follows the square of copyCost, in whole KiB: where system calls
// take longer, a byte through the ring costs less beside one that is fetched, too. A fetch is faster from 6 KB on where copyCost
// is 0.65 us, from 30 KB on where it is 1.4 us (ucx_perftest --calibrate shm, on two kinds of machines).
func FetchThresh(set *config.Set) (config.Bytes, string) {
	v := fetchThresh.Get(set)
	if !v.Auto {
		return v.Value, settingText(set, fetchThresh.Name(), v.Value)
	}
	cost := copyCost()
	us := cost.Seconds() * 1e6
	n := config.Bytes(min(max(us*us*14.5, 4), 32)) << 10
	return n, fmt.Sprintf("%s: %v, since a copy by system call takes %.2f us", settingText(set, fetchThresh.Name(), "auto"), n, us)
}

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
	from := func(f *uct.Fetch, thresh config.Bytes, setting, how, reason string) {
		f.Way, f.Reason, f.Setting = how, reason, setting
		if thresh < math.MaxInt {
			f.From = int(thresh) + 1
		}
	}
	heapThresh, heapSetting := FetchThresh(set)
	if way != "mapped" {
		read, write := tryCopy()
		switch {
		case read != nil:
			a.Heap.Reason = read.Error()
		case write != nil:
			c |= copiesByRead
			from(&a.Heap, heapThresh, heapSetting, "copied by the receiver with process_vm_readv", "its sender can copy nothing: "+write.Error())
		default:
			c |= copiesByRead | copiesByWrite
			from(&a.Heap, heapThresh, heapSetting, "copied by the receiver with process_vm_readv"+by, "the system permits it, and "+setting)
		}
		if read == nil && platform.OwnPIDNamespace() {
			a.Heap.Reason += "; to a peer outside of this process's pid namespace it goes through the ring"
		}
		a.Allocated = a.Heap
	}
	if way != "cma" {
		c |= copiesByMapping
		n := fetchMappedThresh.Get(set)
		from(&a.Allocated, n, settingText(set, fetchMappedThresh.Name(), n), "copied by the receiver from its mapping of the memory"+by, setting)
	}
	if c == copiesByBoth {
		c = 0 // no side can copy
	}
	return c, a
}
