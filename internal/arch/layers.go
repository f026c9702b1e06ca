package arch

import "strings"

// Layer is one row of the import table: what the packages that match Path may import, and the
// reason.
//
// A pattern is a path below the module's root ("." is the root itself). A trailing "/..." also
// matches everything below it. The first row that matches a package applies. The standard library
// is always allowed, except for what Bans restricts.
type Layer struct {
	Path string
	// May lists patterns of this module's packages.
	May []string
	// External lists module paths of dependencies; packages below them are included.
	External []string
	Reason   string
}

// Module paths of dependencies, with short names for the table.
const (
	xsys        = "golang.org/x/sys"
	xterm       = "golang.org/x/term"
	zap         = "go.uber.org/zap"
	viper       = "github.com/spf13/viper"
	pflag       = "github.com/spf13/pflag"
	testify     = "github.com/stretchr/testify"
	histogram   = "github.com/HdrHistogram/hdrhistogram-go"
	progressbar = "github.com/schollz/progressbar/v3"
	gonumPlot   = "gonum.org/v1/plot"
)

// Layers is the import table, from the lowest layer to the highest.
var Layers = []Layer{
	{
		"ucs", nil,
		[]string{xsys},
		"ucs is the floor: status, time and cache lines that everything else stands on",
	},
	{
		"ucs/protocol/protocoltest",
		[]string{"ucs", "ucs/protocol"},
		[]string{testify},
		"the suite knows the formats that it is handed",
	},
	{
		"ucs/...",
		[]string{"ucs/..."},
		[]string{xsys, zap},
		"services know the system and each other, nothing of messaging",
	},
	{
		"config/...",
		[]string{"config/...", "ucs/..."},
		[]string{viper, pflag, zap},
		"settings are read by every layer, so they depend on none",
	},

	{
		"verbs/verbstest/...",
		[]string{"verbs/...", "ucs/...", "internal/sim/...", "internal/suitetest", "internal/race"},
		[]string{testify, xsys, zap},
		"the suite knows the verbs API that it tests",
	},
	{
		"verbs/wire/...",
		[]string{"verbs/wire/...", "verbs", "ucs/..."},
		nil,
		"packet views are pure functions of bytes",
	},
	{
		"verbs/internal/...",
		[]string{"verbs", "ucs"},
		nil,
		"what providers have in common knows the API alone",
	},
	{
		"verbs/soft/...",
		[]string{"verbs/soft/...", "verbs/internal/...", "verbs/wire/...", "verbs", "ucs/..."},
		[]string{xsys, zap},
		"the software RNIC is a verbs provider; it knows neither the other one nor UCT",
	},
	{
		"verbs/ibv/...",
		[]string{"verbs/ibv/...", "verbs/internal/...", "verbs", "ucs/..."},
		[]string{xsys, zap},
		"libibverbs is a verbs provider; it knows neither the other one nor UCT",
	},
	{
		"verbs",
		[]string{"ucs/..."},
		[]string{xsys, zap},
		"the verbs API is handed providers and knows none of them",
	},

	{
		"uct/ucttest/...",
		[]string{"uct/...", "ucs/...", "config/...", "internal/suitetest", "internal/race"},
		[]string{testify, zap, xsys},
		"the suite knows the contract that it tests and is handed a provider",
	},
	{
		"uct/...",
		[]string{"uct/...", "ucs/...", "config/..."},
		[]string{zap, xsys},
		"the transport contract knows no transport and no user of it",
	},
	{
		"transports/internal/nic/...",
		[]string{"transports/internal/...", "verbs", "uct/...", "ucs/...", "config/..."},
		[]string{xsys, zap},
		"what the transports over verbs share knows the verbs API, never a verbs provider: devices are handed to it",
	},
	{
		"transports/internal/conn",
		[]string{"wireup/machine", "uct/...", "ucs/..."},
		nil,
		"what the connections of shm and rc share is below both, and knows the connection machine",
	},
	{
		"transports/internal/...",
		[]string{"transports/internal/...", "uct/...", "ucs/...", "config/..."},
		[]string{xsys, zap},
		"what providers share is below all of them",
	},
	{
		"transports/self/...",
		[]string{"transports/self/...", "transports/internal/...", "uct/...", "ucs/...", "config/..."},
		[]string{xsys, zap},
		"a provider knows the contract, never another provider, wireup or ucp",
	},
	{
		"transports/shm/...",
		[]string{"transports/shm/...", "transports/internal/...", "wireup/machine", "uct/...", "ucs/...", "config/...", "internal/fault"},
		[]string{xsys, zap},
		"a provider knows the contract and the connection machine, never another provider, the rest of wireup or ucp",
	},
	{
		"transports/rc/...",
		[]string{"transports/rc/...", "transports/internal/...", "wireup/machine", "verbs", "uct/...", "ucs/...", "config/..."},
		[]string{xsys, zap},
		"a verbs transport knows the verbs API, never a verbs provider: devices are handed to it",
	},
	{
		"transports/ud/arq",
		[]string{"ucs"},
		nil,
		"reliability is a pure machine: packets and time in, packets out",
	},
	{
		"transports/ud/...",
		[]string{"transports/ud/...", "transports/internal/...", "verbs", "uct/...", "ucs/...", "config/..."},
		[]string{xsys, zap},
		"a verbs transport knows the verbs API, never a verbs provider: devices are handed to it",
	},
	{
		"transports",
		[]string{"transports/...", "verbs", "verbs/soft/...", "verbs/ibv/...", "uct/...", "ucs/...", "config/..."},
		[]string{zap},
		"All is the one list of providers; it imports them and no higher layer",
	},

	{
		"wireup/machine",
		[]string{"ucs"},
		nil,
		"the connection machine is pure and below the transports that it drives",
	},
	{
		"wireup/...",
		[]string{"wireup/...", "uct/...", "ucs/...", "config/..."},
		[]string{zap},
		"addresses and lane choice are functions of data: no provider, no ucp",
	},
	{
		"ucp/ucptest/...",
		[]string{"ucp/...", "wireup/...", "uct/...", "ucs/...", "config/...", "internal/race"},
		[]string{testify, zap},
		"the suite knows the protocols that it tests and is handed the providers",
	},
	{
		"ucp/internal/keycodec",
		[]string{"wireup", "uct", "ucs", "ucs/protocol"},
		nil,
		"the format of a key is a pure function of bytes",
	},
	{
		"ucp/internal/wire",
		[]string{"uct"},
		nil,
		"the layout of messages is a pure function of bytes",
	},
	{
		"ucp/internal/request",
		[]string{"uct", "ucs"},
		nil,
		"a slot refers to lanes, endpoints and buffers by index and knows no worker",
	},
	{
		"ucp/internal/pool",
		nil,
		nil,
		"memory by size class knows nothing of its users",
	},
	{
		"ucp/sharing",
		[]string{"config", "ucs"},
		nil,
		"a policy is a function of data: it knows neither workers nor transports",
	},
	{
		"ucp/sharing/onverbs",
		[]string{"ucp/sharing", "verbs"},
		nil,
		"it creates what a plan names on any device that it is handed",
	},
	{
		"ucp/...",
		[]string{"ucp/...", "wireup/...", "uct/...", "ucs/...", "config/...", "internal/fault", "internal/race"},
		[]string{zap, xsys},
		"ucp is handed the list of providers and never imports one",
	},
	{
		".",
		[]string{"ucp", "transports"},
		nil,
		"the root only opens ucp over transports.All()",
	},
	{
		"coll/...",
		[]string{"coll/...", "ucp", "verbs", "ucs/...", "config/..."},
		[]string{zap},
		"collectives stand on ucp and on the verbs API",
	},
	{
		"perf/...",
		[]string{"perf/...", "ucp", "ucp/sharing/...", "uct/...", "verbs", "ucs/...", "config/..."},
		[]string{histogram, progressbar, xterm, xsys, zap},
		"benchmarks are handed their transports, so that they measure any of them",
	},

	{
		"cmd/ucx_plot",
		[]string{"perf", "perf/report", "internal/cmdline"},
		[]string{pflag, gonumPlot},
		"it draws results and measures nothing; its module keeps gonum/plot out of goucx's",
	},
	{
		"cmd/...",
		[]string{"..."},
		[]string{pflag, progressbar, xterm, xsys, zap},
		"a command wires everything together; nothing imports a command",
	},
	{
		"examples/...",
		[]string{".", "ucp", "config/...", "examples/bootstrap"},
		[]string{pflag},
		"an example shows the public API alone",
	},
	{
		"test/...",
		[]string{"..."},
		[]string{testify, xsys, zap},
		"whole-program tests may look at everything",
	},
	{
		"internal/sim/...",
		[]string{"internal/sim/...", "verbs/wire/...", "verbs", "ucs/..."},
		nil,
		"the simulator knows what it carries, no protocol",
	},
	{
		"internal/instr/...",
		[]string{"perf", "transports", "verbs/soft"},
		[]string{testify},
		"the instruction counter wires up what it counts, as a command does",
	},
	{
		"internal/benchucx",
		[]string{"ucs", "ucs/cpu"},
		[]string{testify},
		"the comparison knows tools, and the cores that they run on",
	},
	{
		"internal/rdmapeer",
		[]string{"verbs", "verbs/soft", "verbs/ibv", "ucs"},
		[]string{testify},
		"the peer of other programs runs on any provider of the verbs API, as a command does",
	},
	{
		"internal/threadtest",
		[]string{"ucs/cpu"},
		[]string{testify},
		"what runs side by side is on processors of its own",
	},
	{
		"internal/shape",
		[]string{"internal/arch"},
		[]string{testify},
		"the measures count what the checks find",
	},
	{
		"internal/...",
		nil,
		[]string{testify},
		"checks and their tools use the standard library alone",
	},
}

// layerOf returns the row of a package, by its path below the module's root.
func layerOf(table []Layer, pkg string) (Layer, bool) {
	for _, l := range table {
		if matches(l.Path, pkg) {
			return l, true
		}
	}
	return Layer{}, false
}

// matches reports whether a package path matches a pattern of the table.
func matches(pattern, pkg string) bool {
	if pattern == "..." {
		return true
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pkg == pattern
}

func matchesAny(patterns []string, pkg string) bool {
	for _, p := range patterns {
		if matches(p, pkg) {
			return true
		}
	}
	return false
}
