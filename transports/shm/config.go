package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
)

// Bounds of UCX_SHM_RING_CELLS.
const (
	minCells = 8
	maxCells = 4096
)

var (
	ringCells = config.New("SHM_RING_CELLS", "32", cellCount(), "cells",
		"Cells of each direction of a new connection. One holds a message of up to 48 bytes.").
		Alias("POSIX_FIFO_SIZE", "SYSV_FIFO_SIZE").Inherit("MM_FIFO_SIZE")
	ringSize = config.New("SHM_RING_SIZE", "10k", config.Size(4<<10, 64<<20), "bytes",
		"Memory of each direction of a new connection: its cells, and the area for longer messages. The default grows with the cells.")
	ringMaxSize = config.New("SHM_RING_MAX_SIZE", "256k", config.Size(4<<10, 64<<20), "bytes",
		"Largest memory of each direction of a connection. It grows to this by doubling, while sends find no room.")
	maxPairs = config.New("SHM_MAX_PAIRS", "1024", config.Int(1, maxConns), "connections",
		"How many connections have memory. Of more, the least recently used idle ones are suspended; they get new memory on use.")
	rescan = config.New("SHM_RESCAN", "2ms", config.Duration(100*time.Microsecond, config.Forever), "time",
		"How often a polling worker looks at every connection, whatever the doorbells say. inf: never.")
	socketDir = config.New("SHM_SOCKET_DIR", "", config.String(), "directory",
		"Where workers create their sockets, for containers that share a directory but no network namespace. empty: the abstract namespace.")
	mailboxUse = config.New("SHM_MAILBOX", "auto", config.Enum("auto", "n"), "",
		"Whether short messages of a connection whose messages alternate share one cache line. auto: while it is faster than the ring. n: never.")
	singleCopy = config.New("SHM_SINGLE_COPY", "auto", config.Enum("auto", "mapped", "cma", "none"), "",
		"How a receiver copies a message that it fetches. auto: from a mapping of memory of Context.Allocate, by system calls from other memory. mapped: by the former alone. cma: by system calls alone, as process_vm_readv. none: no message is fetched; its data takes two copies, through the ring.")
	cooperativeCopy = config.New("SHM_COOPERATIVE_COPY", "y", config.Bool(), "",
		"The sender of a message that is fetched copies some of its pieces of 32k while it polls. n: the receiver copies all, for comparison.")
	fetchThresh = config.New("SHM_FETCH_THRESH", "auto", config.OrAuto(config.Size(1<<10, config.Inf)), "bytes",
		"Longest message that is sent through the ring; the receiver fetches a longer one. An active message that fits into one piece of the ring is not fetched. It counts where UCX_RNDV_THRESH is auto. auto: 4k to 32k, by the time of a system call that copies (6k for 0.65 us). ucx_perftest --calibrate shm measures what is best.")
	fetchMappedThresh = config.New("SHM_FETCH_MAPPED_THRESH", "2k", config.Size(1<<10, config.Inf), "bytes",
		"The same of a message in memory of Context.Allocate, where it is less than UCX_SHM_FETCH_THRESH.")
)

// settings are the configuration variables of this transport.
var settings = config.Table{
	Section:  "shm",
	Settings: []config.Setting{ringCells, ringSize, ringMaxSize, maxPairs, rescan, socketDir, mailboxUse, singleCopy, cooperativeCopy, fetchThresh, fetchMappedThresh},
}

// cellCount returns a parser that accepts a power of two from minCells to maxCells.
func cellCount() config.Parser[int] {
	p := config.Int(minCells, maxCells)
	number := p.Parse
	p.Parse = func(text string) (int, error) {
		n, err := number(text)
		if err == nil && bits.OnesCount(uint(n)) != 1 {
			err = errors.New("no power of two")
		}
		return n, err
	}
	p.Allowed = fmt.Sprintf("a power of two from %d to %d", minCells, maxCells)
	return p
}

// minBulk is the minimum size of a ring's bulk area in bytes. The bulk area holds
// messages that are too long for a cell.
const minBulk = 1 << 10

// ringLayout returns the ring geometry that the settings ask for. The default size grows with the
// cells.
func ringLayout(s *config.Set) (ring.Layout, error) {
	cells, size := ringCells.Get(s), ringSize.Get(s)
	need := config.Bytes(ring.Layout{Cells: cells, Bulk: minBulk}.Size())
	if s.Origin(ringSize.Name()).Kind == config.Default {
		size = max(size, need)
	}
	if size < need {
		return ring.Layout{}, fmt.Errorf("%s does not hold %s, which need at least %v: %w",
			settingText(s, ringSize.Name(), size), settingText(s, ringCells.Name(), cells), (need+1023)&^1023, ucs.ErrInvalid)
	}
	l := ring.Fit(int(size), cells)
	return l, l.Check()
}

// settingText formats a setting with its value and the origin of the value.
func settingText(s *config.Set, name string, v any) string {
	return fmt.Sprintf("%s%s=%v (%v)", config.Prefix, name, v, s.Origin(name))
}
