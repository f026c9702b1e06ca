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

// Values of Config.Link and DeviceInfo.Link.
const (
	LinkInproc = "inproc"
	LinkUDP    = "udp"
	LinkFabric = "fabric" // with Config.Fabric only
)

// EngineMode selects the goroutines that run a device's engine.
type EngineMode uint8

const (
	// EngineBackground: goroutines that post or poll, and a background goroutine while
	// none does. It is the default.
	EngineBackground EngineMode = iota
	// EngineThread: a locked OS thread that never sleeps, besides goroutines that post
	// or poll. It works like an adapter while the processor computes, and occupies a
	// core.
	EngineThread
	// EngineInline: goroutines that post or poll only. It is for tests that need to
	// know when something happens.
	EngineInline
	numEngineModes
)

// String returns the name of the mode.
func (m EngineMode) String() string {
	if m < numEngineModes {
		return [numEngineModes]string{"background", "thread", "inline"}[m]
	}
	return fmt.Sprintf("engine mode %d", uint8(m))
}

// ICRCMode selects how the ICRCs of received packets are checked. Over IPv6 ICRCSearch and
// ICRCStrict are the same.
type ICRCMode uint8

const (
	// ICRCSearch searches for the IPv4 identification that an ICRC was computed with, where
	// it is not the expected one. It is the default. The search leaves 26 of the 32 bits to
	// detect errors in packets of soft devices, and 16 in those that may be of foreign peers:
	// also all datagrams to a device on port 4791.
	ICRCSearch ICRCMode = iota
	// ICRCOff does not check packets of soft devices. The UDP checksum and the link's own
	// remain. Packets that may be of foreign peers are checked as with ICRCSearch.
	ICRCOff
	// ICRCStrict searches for nothing: all 32 bits detect errors. Over IPv4 a packet socket
	// shows identifications, which needs CAP_NET_RAW. Without it, foreign peers over IPv4 are
	// refused, and so are packets of soft devices whose segment batch was cut on its way,
	// which usual networks deliver to a host whose interface does not combine them (GRO).
	ICRCStrict
	numICRCModes
)

// String returns the name of the mode.
func (m ICRCMode) String() string {
	if m < numICRCModes {
		return [numICRCModes]string{"search", "off", "strict"}[m]
	}
	return fmt.Sprintf("icrc mode %d", uint8(m))
}

// Config configures the devices of a Provider. The zero value selects the defaults.
type Config struct {
	// Link restricts the devices to LinkInproc or LinkUDP; "": both. With a Fabric
	// there is one device, on LinkFabric.
	Link string
	// MTU is the MTU of the port; 0: the largest that the link carries. An MTU above
	// 4096 bytes becomes the port's LongMTU, and ActiveMTU is 4096.
	MTU verbs.MTU
	// MaxInline is the longest inline message of a queue pair in bytes, up to 220, which is
	// the default. Up to verbs.InlineLen are in the work request; longer ones are gathered
	// from SGEs by the post, and only queue pairs that request them take memory for them.
	MaxInline int
	// Limits bound the objects of a device.
	Limits Limits
	// Engine selects the goroutines that run the engine.
	Engine EngineMode
	// Depth is the capacity of a device's inbox on the in-process link, in packets. It
	// is rounded up to a power of two, from 16 to 65536; 0: 1024.
	Depth int
	// Window bounds the unacknowledged packets of a queue pair: what the peer's socket
	// holds. The unit is a packet of 4096 bytes, and more packets fit if they are
	// shorter. The range is 1 to 8192. A loss halves the window. It then grows by one
	// packet for each window that is acknowledged.
	//
	// 0 selects 90: what a socket holds that asks a system with default limits for its
	// maximum (416 KB). It selects up to 180 for UDP connections with an MTU above 4096
	// bytes, if this host allows larger buffers: their peer is on this host.
	Window int
	// Addr is the only address that has a UDP device; the zero Addr: one device for
	// each usable address of the host.
	Addr netip.Addr
	// AllGIDs makes one UDP device of each network interface, with a GID for each usable
	// address, up to 16, all on one port: usually an IPv4 and an IPv6 address. Otherwise
	// each address has a device with one GID. GID 0 is Addr, or the first address. Each
	// GID has a socket, so it costs a system call in each pass that looks for packets.
	AllGIDs bool
	// Port is the UDP port; 0: a random one. Peers that support RoCEv2's port only need
	// 4791.
	Port uint16
	// ICRC selects how a UDP device checks the ICRC of received packets. It sends right ones
	// in any case.
	ICRC ICRCMode
	// Adapter selects the adapter whose UAR pages the contexts of a device account for; nil:
	// none. Stats shows the account.
	Adapter *MLX5
	// Switch connects in-process devices; nil: the provider creates one, so that its
	// own devices reach each other.
	Switch *Switch
	// Fabric carries the packets in place of the usual links; nil: none. The device has
	// address Addr and port Port on it, or random ones where those are zero. It takes
	// the time from Fabric.Now.
	Fabric Fabric
	// Faults injects faults on the link; nil: none. In-process devices with faults
	// serialise their packets and those without do not. So a device with faults reaches
	// only other devices with faults.
	Faults *Faults
	// Tap receives a copy of the traffic of UDP devices; nil: none, at no cost. packet
	// holds a packet from the BTH to the ICRC, and h the headers below as they are on
	// the wire. Tap is called right before a packet is sent, and right after one is
	// received. Each packet of a segment batch is passed alone.
	//
	// Tap may be called by several goroutines at a time. It may use both pointers until
	// it returns. It must not call the device.
	Tap func(sent bool, h *wire.Network, packet []byte)
	// Log receives the log lines of the control path; nil: none.
	Log *zap.Logger
}

// Limits are the largest sizes and numbers that a device allows. A zero field selects
// the default, which is in brackets.
type Limits struct {
	// QPs [1048576], CQs [1048576], MRs [1048576], PDs [65536], AHs [1048576] and SRQs
	// [65536] of a context.
	QPs, CQs, MRs, PDs, AHs, SRQs int
	// QPWR [32768] and SRQWR [32768] are the work requests of a queue, CQE [4194304]
	// the completions.
	QPWR, SRQWR, CQE int
	// RdAtomic [16] is the number of outstanding READs and atomics of a queue pair, up
	// to 16. A responder remembers as many of its peer.
	RdAtomic int
}

// Bounds of the settings.
const (
	minDepth, defaultDepth, maxDepth = 16, 1024, 1 << 16
	maxWindow                        = 8192
	// maxInline is what usual adapters have, and fits a packet of every MTU.
	maxInline = 220
	// maxKeys is the number of keys or handles. A key has 32 bits, of which eight are
	// the version.
	maxKeys = 1 << 24
)

// limits has one row per field of Limits.
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
	{"RdAtomic", func(l *Limits) *int { return &l.RdAtomic }, maxDestRdAtomic, maxDestRdAtomic},
}

// Validate returns an error that names all settings out of range.
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
	if c.ICRC >= numICRCModes {
		bad("ICRC", uint8(c.ICRC), "a mode")
	}
	span("MaxInline", c.MaxInline, 1, maxInline)
	span("Depth", c.Depth, minDepth, maxDepth)
	span("Window", c.Window, 1, maxWindow)
	for _, l := range limits {
		span("Limits."+l.name, *l.field(&c.Limits), 1, l.max)
	}
	if a := c.Addr; a.IsValid() && (a.IsUnspecified() || a.IsMulticast() || a.Zone() != "") {
		bad("Addr", a, "the address of an interface, without zone")
	}
	if c.Adapter != nil {
		_, _, err := c.Adapter.uuars()
		errs = append(errs, err)
	}
	if c.Faults != nil {
		errs = append(errs, c.Faults.Validate())
	}
	return errors.Join(errs...)
}

// withDefaults returns the config with its defaults. Link, MTU, Addr and Switch stay: the
// device decides them.
func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.MaxInline, maxInline)
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
