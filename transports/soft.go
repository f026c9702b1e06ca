package transports

import (
	"fmt"
	"net/netip"
	"os"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// Settings of the software RNIC. Package soft reads no settings: SoftConfig translates them to
// soft.Config.
var (
	softLink = config.New("SOFT_LINK", "all", config.Enum("all", soft.LinkInproc, soft.LinkUDP), "",
		"What devices of the software RNIC send through. inproc connects those of one program; udp has a device for each network address of the host.")
	softMTU = config.New("SOFT_MTU", "auto", config.Enum("auto", "256", "512", "1024", "2048", "4096", "20480"), "bytes",
		"Longest payload of a packet. auto: what the network interface carries. 20480 is for connections between devices of goucx; all else has 4096.")
	softMaxInline = config.New("SOFT_MAX_INLINE", "220", config.Size(1, 220), "bytes",
		"Longest inline message of a queue pair; rc refuses devices with less than 64.")
	softRdAtomic = config.New("SOFT_MAX_RD_ATOMIC", "16", config.Int(1, 16), "",
		"Outstanding RDMA reads and atomics of a queue pair.")
	softDepth = config.New("SOFT_DEPTH", "1024", config.Int(16, 1<<16), "packets",
		"Packets that wait in a device on the in-process link; rounded up to a power of two.")
	softWindow = config.New("SOFT_WINDOW", "auto", config.OrAuto(config.Int(1, 8192)), "packets",
		"Unacknowledged packets of 4096 bytes of a queue pair: what the socket of the peer holds. Of shorter packets there are more. auto: 90; up to 180 between programs of one host, whose limits are known.")
	softEngine = config.New("SOFT_ENGINE", "background", config.Enum("background", "thread", "inline"), "",
		"What does a device's work. With inline, the goroutine that posts or polls. With background, also a goroutine of the device when none does. With thread, a thread of its own that never sleeps.")
	softAddr = config.New("SOFT_ADDR", "", addrParser(), "",
		"The one address of the host that has a device over UDP. empty: all have.")
	softGIDs = config.New("SOFT_GIDS", "one", config.Enum("one", "all"), "",
		"GIDs of a device over UDP. one: each network address of the host has a device. all: each network interface has a device, with a GID for each address of it, IPv4 and IPv6, on one port. rc and ud use the first.")
	softICRC = config.New("SOFT_ICRC", "search", config.Enum("search", "off", "strict"), "",
		"How devices over UDP check the ICRC of packets. search: an IPv4 identification that is not the expected one is searched for. off: connections with devices of goucx are not checked. strict: nothing is searched for; over IPv4 peers that are not goucx need CAP_NET_RAW.")
	softPort = config.New("SOFT_PORT", "0", config.Int(0, 1<<16-1), "",
		"UDP port of the devices. 0: a random one for each; 4791: that of RoCEv2, for peers that know no other.")
	softAdapter = config.New("SOFT_ADAPTER", "none", config.Enum("none", "mlx5"), "",
		"The adapter whose doorbell registers (UAR pages) devices account for, with their limits and locks. mlx5: also MLX5_TOTAL_UUARS, MLX5_NUM_LOW_LAT_UUARS and MLX5_SHUT_UP_BF of the environment have the meaning that libmlx5 gives them.")
	softTDQPLock = config.New("SOFT_TD_QP_LOCK", "y", config.Bool(), "",
		"With UCX_SOFT_ADAPTER=mlx5: whether a post takes the lock of its queue pair in a thread domain too, as mlx5 does. n: the thread domain drops it.")
)

// softSettings are the settings that SoftConfig reads.
var softSettings = config.Table{Section: "software RNIC", Settings: []config.Setting{
	softLink, softMTU, softMaxInline, softRdAtomic, softDepth, softWindow, softEngine, softAddr, softGIDs, softPort, softICRC,
	softAdapter, softTDQPLock,
}}

// SoftConfig returns the configuration of the software RNIC's devices according to the
// settings.
func SoftConfig(s *config.Set, log *zap.Logger) soft.Config {
	c := soft.Config{
		MTU: softMTUs[softMTU.Get(s)], MaxInline: int(softMaxInline.Get(s)), Limits: soft.Limits{RdAtomic: softRdAtomic.Get(s)},
		Engine: softEngines[softEngine.Get(s)], Depth: softDepth.Get(s), Window: softWindow.Get(s).Or(0),
		Addr: softAddr.Get(s), AllGIDs: softGIDs.Get(s) == "all", Port: uint16(softPort.Get(s)),
		ICRC: softICRCs[softICRC.Get(s)], Log: log,
	}
	if l := softLink.Get(s); l != "all" {
		c.Link = l
	}
	if softAdapter.Get(s) == "mlx5" {
		noBF := os.Getenv("MLX5_SHUT_UP_BF")
		c.Adapter = &soft.MLX5{
			TotalUUARs: os.Getenv("MLX5_TOTAL_UUARS"), LowLatencyUUARs: os.Getenv("MLX5_NUM_LOW_LAT_UUARS"),
			ShutUpBF: noBF != "" && noBF != "0", NoQPLock: !softTDQPLock.Get(s),
		}
	}
	return c
}

var softMTUs = map[string]verbs.MTU{
	"256": verbs.MTU256, "512": verbs.MTU512, "1024": verbs.MTU1024, "2048": verbs.MTU2048, "4096": verbs.MTU4096, "20480": verbs.MTU20480,
}

var softICRCs = map[string]soft.ICRCMode{"search": soft.ICRCSearch, "off": soft.ICRCOff, "strict": soft.ICRCStrict}

var softEngines = map[string]soft.EngineMode{
	"background": soft.EngineBackground, "thread": soft.EngineThread, "inline": soft.EngineInline,
}

// addrParser accepts an IP address without a zone, or an empty string.
func addrParser() config.Parser[netip.Addr] {
	return config.Parser[netip.Addr]{
		Parse: func(text string) (netip.Addr, error) {
			if text == "" {
				return netip.Addr{}, nil
			}
			a, err := netip.ParseAddr(text)
			if err == nil && a.Zone() != "" {
				err = fmt.Errorf("zone %q is not allowed", a.Zone())
			}
			return a, err
		},
		Format: func(a netip.Addr) string {
			if !a.IsValid() {
				return ""
			}
			return a.String()
		},
		Allowed: "an IPv4 or IPv6 address, or empty",
	}
}
