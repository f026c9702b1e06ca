package ud

import (
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/ud/arq"
)

var (
	txQueueLen = config.New("UD_TX_QUEUE_LEN", "512", config.Int(32, 1<<14), "",
		"Unacknowledged messages of a ud interface: so many short ones, and so many long ones.").
		Alias("UD_VERBS_TX_QUEUE_LEN", "UD_MLX5_TX_QUEUE_LEN").Inherit("IB_TX_QUEUE_LEN")
	rxQueueLen = config.New("UD_RX_QUEUE_LEN", "512", config.Int(64, 1<<14), "",
		"Receives of a ud interface. Messages that the layer above keeps take up to half of them.").
		Alias("UD_VERBS_RX_QUEUE_LEN", "UD_MLX5_RX_QUEUE_LEN").Inherit("IB_RX_QUEUE_LEN")
	maxWindow = config.New("UD_MAX_WINDOW", "255", config.IntUpTo(1, arq.MaxWindow), "packets",
		"Unacknowledged messages of an endpoint. Losses lower it for a while.").
		Alias("UD_VERBS_MAX_WINDOW", "UD_MLX5_MAX_WINDOW")
	timeout = config.New("UD_TIMEOUT", "30s", config.Duration(10*time.Millisecond, time.Hour), "time",
		"How long a peer may send no reply before its endpoints fail.").
		Alias("UD_VERBS_TIMEOUT", "UD_MLX5_TIMEOUT")
	keepalive = config.New("UD_KEEPALIVE_INTERVAL", "10s", config.Duration(time.Millisecond, config.Forever), "time",
		"After how long without a message a ud endpoint sends a keepalive. inf: never.").
		Inherit("KEEPALIVE_INTERVAL")
	timerTick = config.New("UD_TIMER_TICK", "4ms", config.Duration(100*time.Microsecond, time.Second), "time",
		"Shortest time after which unacknowledged messages are retransmitted. Measured round trips and silence make it longer.").
		Alias("UD_VERBS_TIMER_TICK", "UD_MLX5_TIMER_TICK")
	linger = config.New("UD_LINGER_TIMEOUT", "500ms", config.Duration(0, time.Hour), "time",
		"How long closing a ud interface waits for acknowledgements.").
		Alias("UD_VERBS_LINGER_TIMEOUT", "UD_MLX5_LINGER_TIMEOUT")
)

var settings = config.Table{Section: "ud", Settings: []config.Setting{
	txQueueLen, rxQueueLen, maxWindow, timeout, keepalive, timerTick, linger,
}}

// endless is a keepalive interval that never ends, to which times can be added.
const endless = 100 * 365 * 24 * time.Hour

// flowConfig returns the configuration of all flows for the settings in s.
func flowConfig(s *config.Set) arq.Config {
	c := arq.Default
	c.Window = uint32(maxWindow.Get(s))
	c.Initial = min(c.Initial, c.Window)
	c.PeerTimeout, c.KeepAlive = timeout.Get(s), min(keepalive.Get(s), endless)
	c.MinRTO = timerTick.Get(s)
	c.FirstRTO, c.MaxRTO = max(c.FirstRTO, c.MinRTO), max(c.MaxRTO, c.MinRTO)
	c.MaxRTO = max(min(c.MaxRTO, c.PeerTimeout/8), c.MinRTO)
	return c
}
