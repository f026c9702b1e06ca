package ucp

import (
	"math"
	"time"

	"github.com/goucx/goucx/config"
)

var (
	rowSlowPasses = config.New("SLOW_EVENT_PASSES", "1024", config.Int(1, math.MaxInt32), "",
		"Progress passes after which interfaces without connections are looked at.")
	rowSlowInterval = config.New("SLOW_EVENT_INTERVAL", "20us", config.Duration(0, time.Second), "s",
		"Time after which they are looked at where that is earlier.")
)

// Settings are the rows of this package.
func Settings() config.Table {
	return config.Table{Section: "ucp", Settings: []config.Setting{rowSlowPasses, rowSlowInterval, rowStatsDest}}
}
