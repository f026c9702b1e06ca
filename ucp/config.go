package ucp

import (
	"math"
	"slices"
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

var (
	rowSlowPasses = config.New("SLOW_EVENT_PASSES", "1024", config.Int(1, math.MaxInt32), "",
		"Progress passes after which interfaces without connections are looked at.")
	rowSlowInterval = config.New("SLOW_EVENT_INTERVAL", "20us", config.Duration(0, time.Second), "s",
		"Time after which they are looked at where that is earlier.")
	rowMaxLive = config.New("MAX_LIVE_CONNECTIONS", "inf", config.Int(1, math.MaxInt), "connections",
		"How many connections of a worker hold rings or a queue pair; of more, idle ones are put to sleep, least recently used first, and wake on use.")
	rowConnect = config.New("CONNECT", "lazy", config.Enum("lazy", "eager"), "",
		"When an endpoint connects; lazy: at its first operation; eager: when it is made, for comparison.")
	rowSpinTime = config.New("SPIN_TIME", "20us", config.Duration(0, config.Forever), "s",
		"How long a wait polls before it sleeps until something comes, at least for the two microseconds that going to sleep takes; inf: it never sleeps.")
)

var (
	rowRndvThresh = config.New("RNDV_THRESH", "auto", config.IntraInter(config.OrAuto(config.Size(0, config.Inf))), "bytes",
		"Longest message that is sent without being asked for; auto: 64k.")
	rowZcopyThresh = config.New("ZCOPY_THRESH", "auto", config.OrAuto(config.Size(0, config.Inf)), "bytes",
		"Shortest put or get over a network device that is not copied: its memory is registered for the time being, where it is not yet; auto: 16k, and 4k of memory that is.")
	rowRndvOutstanding = config.New("RNDV_OUTSTANDING", "65536", config.Int(1, math.MaxInt32), "",
		"Messages to one worker that may wait to be asked for or matched; the next such send waits at the sender, with all that is posted after it.")
	rowUnexpectedBudget = config.New("UNEXPECTED_BUDGET", "64m", config.Size(0, config.Inf), "bytes",
		"Unexpected messages that a worker keeps before it has their senders announce what they send.")
)

// autoRndvThresh is the value of UCX_RNDV_THRESH=auto in bytes.
const autoRndvThresh = 64 << 10

// autoZcopyFrom is the value of UCX_ZCOPY_THRESH=auto.
var autoZcopyFrom = zcopyFrom{any: 16 << 10, registered: 4 << 10}

// Tables returns the setting tables of a context with these providers, each once: those
// of this package, of lane selection and of the providers.
func Tables(providers []uct.Component) []config.Table {
	tables := []config.Table{Settings(), wireup.Settings()}
	for _, p := range providers {
		for _, t := range p.Settings() {
			if !slices.ContainsFunc(tables, func(o config.Table) bool { return o.Section == t.Section }) {
				tables = append(tables, t)
			}
		}
	}
	return tables
}

// Settings returns the settings of this package.
func Settings() config.Table {
	return config.Table{Section: "ucp", Settings: []config.Setting{rowSlowPasses, rowSlowInterval, rowMaxLive, rowConnect, rowSpinTime, rowRndvThresh, rowZcopyThresh, rowRndvOutstanding, rowUnexpectedBudget, rowKeyResolve, rowIdleSkip, rowStatsDest}}
}
