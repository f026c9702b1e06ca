package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/goucx/goucx/verbs"
)

// plan is the parsed command line.
type plan struct {
	test   *test
	server string // host of the server; "": this side is the server

	port   int          // of TCP
	typ    verbs.QPType // of the queue pairs
	size   int          // bytes of a message
	iters  int          // messages of each queue pair
	qps    int          // queue pairs
	mtu    verbs.MTU    // largest path MTU; 0: the port's
	both   bool         // both sides send
	events bool         // sleep until a completion
	srq    bool         // one shared receive queue
	swap   bool         // compare and swap, not fetch and add
	inline int          // bytes of the longest message that is sent inline
	rx, tx int          // receives, and sends, that are queued on a queue pair

	timeout uint8 // code of the time-out of a queue pair
	limit   time.Duration

	provider, device string
	addr             netip.Addr // of the device
	gidIndex         int        // -1: that of addr, or 0
	udpPort          uint16     // of a soft device
	loss             float64    // that a soft device injects
	counters         bool       // print the device's counters
}

// maxSize is the longest message, maxQPs the most queue pairs.
const (
	maxSize = 1 << 23
	maxQPs  = 256
)

// usage is the head of the help.
const usage = `usage: rdmapeer [options] PROGRAM [SERVER]

Runs the server of PROGRAM, or with SERVER its client:
%s
options:
`

// parse parses the command line. Errors are those of the caller.
func parse(args []string, stderr io.Writer) (*plan, error) {
	p := &plan{}
	f := flag.NewFlagSet("rdmapeer", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		for i := range tests {
			if i == 0 {
				fmt.Fprintf(stderr, usage, "  "+strings.Join(testNames(), " "))
			}
		}
		f.PrintDefaults()
	}
	f.IntVar(&p.port, "p", 18515, "TCP `port`")
	typ := f.String("c", "", "`type` of the queue pairs: RC, UC or UD")
	f.IntVar(&p.size, "s", -1, "`bytes` of a message; -1: the program's default")
	f.IntVar(&p.iters, "n", 0, "`messages` of each queue pair; 0: the program's default")
	f.IntVar(&p.qps, "q", 0, "`number` of queue pairs; 0: the program's default")
	mtu := f.Int("m", 0, "path MTU in `bytes`; 0: perftest: the port's, ibv_*_pingpong: 1024")
	f.BoolVar(&p.both, "b", false, "both sides send")
	f.BoolVar(&p.events, "e", false, "sleep until a completion")
	f.BoolVar(&p.srq, "use-srq", false, "use a shared receive queue")
	kind := f.String("A", "FETCH_AND_ADD", "`kind` of atomic: FETCH_AND_ADD or CMP_AND_SWAP")
	f.IntVar(&p.inline, "I", 0, "send messages of up to `bytes` inline")
	f.IntVar(&p.rx, "r", 512, "`receives` on a queue pair")
	f.IntVar(&p.tx, "t", 128, "outstanding `sends` of a queue pair")
	timeout := f.Uint("u", 18, "time-out of a queue pair: 4.096 µs times two to the power of this `code`")
	f.DurationVar(&p.limit, "limit", time.Minute, "longest `duration` of the run")
	f.StringVar(&p.provider, "provider", "soft", "`provider` of the device: "+strings.Join(providerNames(), ", "))
	f.StringVar(&p.device, "d", "", "`name` of the device; empty: that of -addr, or the first")
	addr := f.String("addr", "", "IP `address` of the device")
	f.IntVar(&p.gidIndex, "x", -1, "`index` of the GID; -1: that of -addr, or 0")
	udp := f.Uint("udp-port", 4791, "UDP `port` of a soft device; 0: a random one, which other implementations do not support")
	f.Float64Var(&p.loss, "loss", 0, "`chance` that a soft device drops a packet it sends")
	f.BoolVar(&p.counters, "v", false, "print the counters of the device that are not 0")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var errs []error
	bad := func(ok bool, format string, a ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	if p.test = testByName(f.Arg(0)); p.test == nil {
		return nil, fmt.Errorf("program %q, want one of %s", f.Arg(0), strings.Join(testNames(), " "))
	}
	p.server = f.Arg(1)
	bad(f.NArg() <= 2, "unexpected argument %q", f.Arg(2))
	p.setDefaults()
	if *addr != "" {
		var err error
		p.addr, err = netip.ParseAddr(*addr)
		bad(err == nil, "-addr: %w", err)
	}
	if *mtu != 0 {
		p.mtu = mtuOf(*mtu)
		bad(p.mtu != 0, "-m %d, want 256, 512, 1024, 2048 or 4096", *mtu)
	}
	if *typ != "" {
		p.typ = map[string]verbs.QPType{"RC": verbs.RC, "UC": verbs.UC, "UD": verbs.UD}[*typ]
		bad(p.typ != 0, "-c %s, want RC, UC or UD", *typ)
	}
	p.swap = *kind == "CMP_AND_SWAP"
	bad(p.swap || *kind == "FETCH_AND_ADD", "-A %s, want FETCH_AND_ADD or CMP_AND_SWAP", *kind)
	bad(*timeout >= 1 && *timeout <= 31, "-u %d, want 1 to 31", *timeout)
	bad(*udp <= 65535, "-udp-port %d, want 0 to 65535", *udp)
	p.timeout, p.udpPort = uint8(*timeout), uint16(*udp)
	return p, errors.Join(append(errs, p.validate())...)
}

// setDefaults replaces what the command line does not set by the program's defaults.
func (p *plan) setDefaults() {
	t := p.test
	p.typ = t.typ
	if p.size < 0 {
		p.size = t.size
	}
	if p.iters == 0 {
		p.iters = t.iters
	}
	if p.qps == 0 {
		p.qps = t.qps
	}
	if t.pattern == pingpong {
		p.mtu = verbs.MTU1024
	}
	p.srq = p.srq || t.srq
}

// validate returns all settings that are out of range or do not fit together.
func (p *plan) validate() error {
	var errs []error
	bad := func(ok bool, format string, a ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	t := p.test
	bad(p.port >= 1 && p.port <= 65535, "-p %d, want 1 to 65535", p.port)
	bad(p.size >= 1 && p.size <= maxSize, "-s %d, want 1 to %d", p.size, maxSize) // the programs refuse 0, too
	bad(p.iters >= 1 && p.iters <= 1<<30, "-n %d, want 1 to %d", p.iters, 1<<30)
	bad(p.qps >= 1 && p.qps <= maxQPs, "-q %d, want 1 to %d", p.qps, maxQPs)
	bad(p.rx >= 1 && p.rx <= 1<<14, "-r %d, want 1 to %d", p.rx, 1<<14)
	bad(p.tx >= 1 && p.tx <= 1<<14, "-t %d, want 1 to %d", p.tx, 1<<14)
	bad(p.inline >= 0, "-I %d, want 0 or more", p.inline)
	bad(p.limit >= time.Millisecond && p.limit <= 24*time.Hour, "-limit %v, want 1ms to 24h", p.limit)
	bad(p.loss >= 0 && p.loss < 1, "-loss %v, want 0 to less than 1", p.loss)
	bad(p.qps == 1 || t.pattern == bandwidth || t.srq, "-q %d: %s uses one queue pair", p.qps, t.name)
	bad(!p.both || t.pattern == bandwidth, "-b: %s sends both ways already", t.name)
	bad(!p.srq || t.verb == verbSend, "-use-srq: %s receives no messages", t.name)
	bad(t.pattern != pingpong || p.typ == t.typ, "-c: the queue pairs of %s are %v", t.name, t.typ)
	bad(p.typ != verbs.UD || t.verb == verbSend, "-c UD: %s needs a connection", t.name)
	bad(p.typ != verbs.UC || t.verb <= verbWrite, "-c UC: %s needs RC", t.name)
	bad(t.verb != verbAtomic || p.size == atomicSize, "-s %d: atomics have %d bytes", p.size, atomicSize)
	bad(p.typ != verbs.UD || p.size <= verbs.MTU4096.Bytes(), "-s %d: a datagram has up to %d bytes", p.size, verbs.MTU4096.Bytes())
	return errors.Join(errs...)
}

func testNames() (names []string) {
	for i := range tests {
		names = append(names, tests[i].name)
	}
	return names
}

// mtuOf returns the code of an MTU in bytes, or 0.
func mtuOf(bytes int) verbs.MTU {
	for m := verbs.MTU256; m <= verbs.MTU4096; m++ {
		if m.Bytes() == bytes {
			return m
		}
	}
	return 0
}
