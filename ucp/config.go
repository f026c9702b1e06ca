package ucp

import (
	"math"
	"slices"
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

var (
	rowSlowPasses = config.New("SLOW_EVENT_PASSES", "4096", config.Int(1, math.MaxInt32), "",
		"Progress passes after which interfaces without connections are progressed; 16 times as many while messages arrive.")
	rowSlowInterval = config.New("SLOW_EVENT_INTERVAL", "50us", config.Duration(0, time.Second), "s",
		"Time after which interfaces without connections are progressed, where that is earlier.")
	rowMaxLive = config.New("MAX_LIVE_CONNECTIONS", "inf", config.Int(1, math.MaxInt), "connections",
		"How many connections of a worker hold rings or a queue pair. Of more, the least recently used idle ones are suspended; they resume on use.")
	rowConnect = config.New("CONNECT", "lazy", config.Enum("lazy", "eager"), "",
		"When an endpoint connects. lazy: at its first operation; eager: when it is created, for comparison.")
	rowSpinTime = config.New("SPIN_TIME", "20us", config.Duration(0, config.Forever), "s",
		"How long a wait polls before it sleeps, at least 2us, which going to sleep takes. inf: it never sleeps.")
	rowThreadSharing = config.New("THREAD_SHARING", sharing.Default, sharing.Parser(), "",
		"Which device contexts, thread domains and queue pairs the threads of a worker share, unless WorkerConfig.Sharing says it. From mpi-everywhere, a context for each thread, to mpi-threads, one set of queue pairs for all: docs/tuning-threads.md.")
)

var (
	rowRndvThresh = config.New("RNDV_THRESH", "auto", config.IntraInter(config.OrAuto(config.Size(0, config.Inf))), "bytes",
		"Longest message that is sent eagerly. A longer one is announced, and its data follows when a receive matches. auto: 64k; over shm, where the receiver copies it from the sender's memory, UCX_SHM_FETCH_THRESH, and UCX_SHM_FETCH_MAPPED_THRESH in memory of Context.Allocate.")
	rowZcopyThresh = config.New("ZCOPY_THRESH", "auto", config.OrAuto(config.Size(0, config.Inf)), "bytes",
		"Shortest put or get over a network device that is not copied. Memory that is not registered yet is registered for the operation. auto: 16k, and 4k of registered memory.")
	rowRndvOutstanding = config.New("RNDV_OUTSTANDING", "65536", config.Int(1, math.MaxInt32), "",
		"Announced and unmatched messages to one worker. The next such send waits at the sender, and so does all that is posted after it.")
	rowUnexpectedBudget = config.New("UNEXPECTED_BUDGET", "64m", config.Size(0, config.Inf), "bytes",
		"Unexpected messages that a worker keeps. Beyond that it has the senders announce each message before they send it.")
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
	return config.Table{Section: "ucp", Settings: []config.Setting{rowSlowPasses, rowSlowInterval, rowMaxLive, rowConnect, rowSpinTime, rowThreadSharing, rowRndvThresh, rowZcopyThresh, rowRndvOutstanding, rowUnexpectedBudget, rowKeyResolve, rowIdleSkip, rowStatsDest}}
}
