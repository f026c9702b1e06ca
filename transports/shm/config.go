package shm

import (
	"time"

	"github.com/goucx/goucx/config"
)

var (
	ringCells = config.New("SHM_RING_CELLS", "128", config.Int(8, 4096), "cells",
		"cells of each direction of a connection, a power of two; one holds a message of up to 48 bytes")
	ringSize = config.New("SHM_RING_SIZE", "16k", config.Size(4<<10, 64<<20), "bytes",
		"memory of each direction of a connection: its cells, and the area for longer messages")
	rescan = config.New("SHM_RESCAN", "2ms", config.Duration(100*time.Microsecond, config.Forever), "time",
		"how often a polling worker looks at every connection, whatever the hints say; inf: never")
	socketDir = config.New("SHM_SOCKET_DIR", "", config.String(), "directory",
		"where workers make their sockets, for containers that share a directory but no network namespace; empty: the abstract namespace")
)

// settings are the rows of this transport.
var settings = config.Table{
	Section:  "shm",
	Settings: []config.Setting{ringCells, ringSize, rescan, socketDir},
}
