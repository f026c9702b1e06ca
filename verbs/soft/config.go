package soft

import (
	"errors"
	"fmt"
	"net/netip"

	"go.uber.org/zap"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Links that a device may send through.
const (
	LinkInproc = "inproc"
	LinkUDP    = "udp"
	LinkFabric = "fabric" // Config.Fabric
)

// EngineMode says who runs a device's engine.
type EngineMode uint8

const (
	// EngineBackground: whoever posts or polls, and a goroutine that takes over
	// when nobody does. It is the default.
	EngineBackground EngineMode = iota
	// EngineThread: a thread of its own that never sleeps, like an adapter that
	// works while the processor computes. It costs a core.
	EngineThread
	// EngineInline: whoever posts or polls, and nobody else. For tests that must
	// know when something happens.
	EngineInline
	numEngineModes
)

// String names the mode.
func (m EngineMode) String() string {
	if m < numEngineModes {
		return [numEngineModes]string{"background", "thread", "inline"}[m]
	}
	return fmt.Sprintf("engine mode %d", uint8(m))
}

// Config is what devices are opened with. The zero value is good for all but
// special cases.
type Config struct {
	// Link restricts the devices to LinkInproc or LinkUDP; "": both. With a Fabric
	// there is one device, on it.
	Link string
	// MTU of the port; 0: the largest that the link carries. Beyond 4096 it is the
	// port's LongMTU, and ActiveMTU is 4096.
	MTU verbs.MTU
	// MaxInline is the longest inline message of a queue pair in bytes, up to
	// verbs.InlineLen; 0: that.
	MaxInline int
	// Limits are what a device gives at most.
	Limits Limits
	// Engine says who runs the engine.
	Engine EngineMode
	// Depth is how many packets wait in a device's inbox at most on the in-process
	// link, rounded up to a power of two, 16 to 65536; 0: 1024.
	Depth int
	// Window is how much of a queue pair is unanswered at most, in packets of 4096
	// bytes, up to 8192: what the peer's socket holds. More shorter packets fit in.
	// It is halved on a loss, and grows again. 0: 90, what a device's socket holds
	// that asks a system with its usual limits for all that it may have (416 KB); up
	// to 180 on connections with long packets over UDP, whose peer is on this host,
	// where this host's limits are wider.
	Window int
	// Addr is the one address that a UDP device has; the zero Addr: a device for
	// each usable address of the host.
	Addr netip.Addr
	// Port is the UDP port; 0: a random one. 4791 is RoCEv2's, for peers that know
	// no other.
	Port uint16
	// Switch connects in-process devices; nil: one that the provider makes, so that
	// its own devices reach each other.
	Switch *Switch
	// Fabric carries the packets, in place of the usual links; nil: none. The device
	// has address Addr and Port on it, random where they are not given, and its time.
	Fabric Fabric
	// Faults are what goes wrong on the link; nil: nothing. In-process devices with
	// faults reach only one another: they serialise packets, the others do not.
	Faults *Faults
	// Tap sees the packets of the devices on UDP, from the BTH to the ICRC, with the
	// headers below as they are on the way: what is sent right before, what is
	// received right after, each packet of a train alone. nil: nobody, which costs
	// nothing. It is called by any goroutine, several at a time; both pointers are
	// its own until it returns. It calls nothing of the device.
	Tap func(sent bool, h *wire.Network, packet []byte)
	// Log gets what the control path has to tell; nil: nobody.
	Log *zap.Logger
}

// Limits are the sizes and numbers that a device gives at most; a zero field
// stands for its default, which is in brackets.
type Limits struct {
	// QPs [1048576], CQs [1048576], MRs [1048576], PDs [65536], AHs [1048576],
	// SRQs [65536] of a context.
	QPs, CQs, MRs, PDs, AHs, SRQs int
	// QPWR [32768] and SRQWR [32768] work requests of a queue, CQE [4194304]
	// completions.
	QPWR, SRQWR, CQE int
	// RdAtomic [16] reads and atomics outstanding per queue pair, up to 16: so many
	// of a peer are remembered.
	RdAtomic int
}

// Bounds of the settings.
const (
	minDepth, defaultDepth, maxDepth = 16, 1024, 1 << 16
	maxWindow                        = 8192
	// maxKeys is how many keys or handles there are: eight bits of them are the
	// version.
	maxKeys = 1 << 24
)

// limits is one row per field of Limits.
var limits = []struct {
	name     string
	field    func(*Limits) *int
	def, max int
}{
	{"QPs", func(l *Limits) *int { return &l.QPs }, 1 << 20, 1 << 20},
	{"CQs", func(l *Limits) *int { return &l.CQs }, 1 << 20, maxKeys},
	{"MRs", func(l *Limits) *int { return &l.MRs }, 1 << 20, maxKeys},
	{"PDs", func(l *Limits) *int { return &l.PDs }, 1 << 16, maxKeys},
	{"AHs", func(l *Limits) *int { return &l.AHs }, 1 << 20, maxKeys},
	{"SRQs", func(l *Limits) *int { return &l.SRQs }, 1 << 16, maxKeys},
	{"QPWR", func(l *Limits) *int { return &l.QPWR }, 1 << 15, 1 << 20},
	{"SRQWR", func(l *Limits) *int { return &l.SRQWR }, 1 << 15, 1 << 20},
	{"CQE", func(l *Limits) *int { return &l.CQE }, 1 << 22, 1 << 24},
	{"RdAtomic", func(l *Limits) *int { return &l.RdAtomic }, maxDestRd, maxDestRd},
}

// Validate names all settings that are out of range.
func (c *Config) Validate() error {
	var errs []error
	bad := func(name string, v any, want string) {
		errs = append(errs, fmt.Errorf("soft device: %s %v, want %s: %w", name, v, want, ucs.ErrInvalid))
	}
	span := func(name string, v, lo, hi int) {
		if v != 0 && (v < lo || v > hi) {
			bad(name, v, fmt.Sprintf("%d to %d, or 0", lo, hi))
		}
	}
	if c.Link != "" && c.Link != LinkInproc && c.Link != LinkUDP && (c.Link != LinkFabric || c.Fabric == nil) {
		bad("Link", fmt.Sprintf("%q", c.Link), LinkInproc+" or "+LinkUDP)
	}
	if c.MTU != 0 && c.MTU.Bytes() == 0 {
		bad("MTU", uint8(c.MTU), "the code of 256 to 4096, or 20480 bytes")
	}
	if c.Engine >= numEngineModes {
		bad("Engine", uint8(c.Engine), "a mode")
	}
	span("MaxInline", c.MaxInline, 1, verbs.InlineLen)
	span("Depth", c.Depth, minDepth, maxDepth)
	span("Window", c.Window, 1, maxWindow)
	for _, l := range limits {
		span("Limits."+l.name, *l.field(&c.Limits), 1, l.max)
	}
	if a := c.Addr; a.IsValid() && (a.IsUnspecified() || a.IsMulticast() || a.Zone() != "") {
		bad("Addr", a, "the address of an interface, without zone")
	}
	if c.Faults != nil {
		errs = append(errs, c.Faults.Validate())
	}
	return errors.Join(errs...)
}

// filled is the config with its defaults in place, but for what the device
// decides: Link, MTU, Addr, Switch.
func (c Config) filled() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.MaxInline, verbs.InlineLen)
	def(&c.Depth, defaultDepth)
	for _, l := range limits {
		def(l.field(&c.Limits), l.def)
	}
	depth := minDepth
	for depth < c.Depth {
		depth *= 2
	}
	c.Depth = depth
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}
