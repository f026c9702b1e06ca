package rc

import (
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct"
)

const transportName = "rc"

// Atomics of RC QPs, all on 64-bit words: those without a result, and those with one.
const (
	postAtomics  uct.AtomicSet = 1 << uct.AtomicAdd
	fetchAtomics uct.AtomicSet = 1<<uct.AtomicAdd | 1<<uct.AtomicCompareSwap
)

// Component returns the provider of the rc transport for the devices of ps. shared are the
// tables of settings that ps reads.
func Component(ps nic.Providers, shared ...config.Table) uct.Component {
	return On(nic.Share(ps), shared...)
}

// On is Component for devices that are shared with other transports.
func On(ds *nic.Devices, shared ...config.Table) uct.Component {
	return nic.NewComponent(nic.Transport{
		Name: transportName, Aliases: []string{"rc_verbs", "rc_v", "ib"}, ID: uct.TransportRC, Settings: settings,
		RMA:      uct.OpsPut | uct.OpGetBcopy | uct.OpGetZcopy | uct.OpAtomics,
		Atomic64: fetchAtomics, Open: openIface,
	}, ds, shared...)
}

var (
	segSize = config.New("RC_SEG_SIZE", "8k", config.Size(512, 1<<20), "bytes",
		"Longest active message of rc, with its header of 16 bytes.").
		Alias("RC_VERBS_SEG_SIZE", "RC_MLX5_SEG_SIZE").Inherit("IB_SEG_SIZE")
	rxQueueLen = config.New("RC_RX_QUEUE_LEN", "512", config.Int(32, 1<<14), "",
		"Receives that an rc interface keeps posted. The layer above may keep as many buffers more.").
		Alias("RC_VERBS_RX_QUEUE_LEN", "RC_MLX5_RX_QUEUE_LEN").Inherit("IB_RX_QUEUE_LEN")
	txQueueLen = config.New("RC_TX_QUEUE_LEN", "256", config.Int(16, 1<<12), "",
		"Operations of an rc connection that are under way at once; rounded up to a power of two.").
		Alias("RC_VERBS_TX_QUEUE_LEN", "RC_MLX5_TX_QUEUE_LEN").Inherit("IB_TX_QUEUE_LEN")
	txBufs = config.New("RC_TX_BUFS", "512", config.Int(16, 1<<14), "",
		"Buffers of an rc interface for what is copied before it is sent, and for what is fetched.")
	maxQPs = config.New("RC_MAX_PAIRS", "1024", config.Int(1, 1<<20), "connections",
		"How many rc connections of an interface have queue pairs. Of more, the least recently used idle ones are suspended; they get new ones on use.")
	timeout = config.New("RC_TIMEOUT", "2s", config.Duration(100*time.Microsecond, time.Minute), "time",
		"How long an rc connection waits for an acknowledgement before it retransmits; rounded up to 4.096us times a power of two.").
		Alias("RC_VERBS_TIMEOUT", "RC_MLX5_TIMEOUT")
	retryCount = config.New("RC_RETRY_COUNT", "7", config.IntUpTo(0, 7), "",
		"How often an rc connection retransmits before the peer counts as dead.").
		Alias("RC_VERBS_RETRY_COUNT", "RC_MLX5_RETRY_COUNT")
	keepalive = config.New("RC_KEEPALIVE_INTERVAL", "20s", config.Duration(time.Millisecond, config.Forever), "time",
		"After how long without a message an rc connection sends a keepalive. inf: never.").
		Inherit("KEEPALIVE_INTERVAL")
	connectTimeout = config.New("RC_CONNECT_TIMEOUT", "15s", config.Duration(time.Millisecond, time.Hour), "time",
		"How long an rc interface tries to reach a peer that does not reply. Time in which the process is stopped does not count.")
	connectRetry = config.New("RC_CONNECT_RETRY", "20ms", config.Duration(100*time.Microsecond, time.Minute), "time",
		"After how long a connection message without a reply is retransmitted; at most a quarter of UCX_RC_CONNECT_TIMEOUT.")
)

var settings = config.Table{Section: "rc", Settings: []config.Setting{
	segSize, rxQueueLen, txQueueLen, txBufs, maxQPs, timeout, retryCount, keepalive, connectTimeout, connectRetry,
}}

// timeoutCode returns the smallest code of a timeout of at least d.
//
// Source: IBTA vol. 1, 11.2.5.2.
func timeoutCode(d time.Duration) uint8 {
	code := uint8(1)
	for code < 31 && timeoutOf(code) < d {
		code++
	}
	return code
}

// timeoutOf returns the timeout of a code above 0.
func timeoutOf(code uint8) time.Duration { return 4096 * time.Nanosecond << code }
