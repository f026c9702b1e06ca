package self

import "github.com/goucx/goucx/config"

var (
	segSize = config.New("SELF_SEG_SIZE", "8k", config.Size(64, 1<<20), "bytes",
		"Longest active message of the self transport.")
	fifoSize = config.New("SELF_FIFO_SIZE", "256", config.Int(2, 1<<16), "",
		"Messages that one endpoint of the self transport holds until they are delivered; rounded up to a power of two.")
)

var settings = config.Table{Section: "self", Settings: []config.Setting{segSize, fifoSize}}

// sizes are the sizes of a queue, from the settings.
type sizes struct {
	seg    int // maximum payload without head, bytes
	cells  int // number of descriptors, a power of two
	memory int // payload area, bytes
}

// queueSegments is the number of messages of maximum length that a queue holds.
const queueSegments = 4
