package self

import (
	"math/bits"

	"github.com/goucx/goucx/config"
)

var (
	segSize = config.New("SELF_SEG_SIZE", "8k", config.Size(64, 1<<20), "bytes",
		"Longest active message of the self transport.")
	fifoSize = config.New("SELF_FIFO_SIZE", "256", config.Int(2, 1<<16), "",
		"Messages that one endpoint of the self transport holds until they are delivered; rounded up to a power of two.")
)

var settings = config.Table{Section: "self", Settings: []config.Setting{segSize, fifoSize}}

// sizes are the settings as the queues need them.
type sizes struct {
	seg    int // longest payload without head, bytes
	cells  int // messages a queue holds, a power of two
	memory int // payload bytes a queue holds
}

// segments is how many of the longest messages a queue holds.
const segments = 4

func sizesOf(s *config.Set) sizes {
	seg := int(segSize.Get(s))
	return sizes{
		seg:    seg,
		cells:  1 << bits.Len(uint(fifoSize.Get(s)-1)),
		memory: segments * align(seg+maxHead),
	}
}
