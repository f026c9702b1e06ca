package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/goucx/goucx/internal/cmdline"
	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/ucs"
)

// usageError is an invalid command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// options is the parsed command line.
type options struct {
	help, full, commentOut, all, json  bool
	man                                bool
	completion                         string // a shell
	transport, filter, features, types string
	placement, address, memory         string
	live, sharing                      string
	threads, qps, processes            string // of --sharing; "": none given
	endpoints, perNode                 string // estimated numbers of endpoints; "": none given
	ip                                 string // local address for the exchange of worker addresses
	ipv6                               bool
	sections                           []option // sections to show, in table order
}

// option is a row of the option table, from which flags and help are generated.
type option struct {
	letter, name string
	arg          string // name of the argument; "": a switch
	noArg        string // if not "": the argument is optional, and this is its default
	value        any    // *bool or *string; nil with show: the option has no value
	show         func(*tool) error
	json         string // key of the output of show, if --json can print it
	help         string // lines
}

// group is a heading of the help with its rows.
type group struct {
	title string
	rows  []option
}

// table lists every option.
func table(o *options) []group {
	return []group{
		{"At least one of the following options has to be set:", []option{
			{letter: "v", name: "version", show: (*tool).version, json: "version", help: "Show version information"},
			{letter: "b", name: "build", show: (*tool).build, help: "Show build configuration"},
			{letter: "y", name: "types", show: (*tool).typeInfo, help: "Show type and structures information"},
			{letter: "s", name: "system", show: (*tool).system, help: "Show system information: CPU, topology, what is forbidden"},
			{letter: "T", name: "topology", show: (*tool).systemTopology, help: "Print system topology"},
			{letter: "M", name: "memcpy", show: (*tool).memcpy, help: "Print memory copy bandwidth"},
			{letter: "d", name: "devices", show: (*tool).devices, json: "devices", help: "Show devices and transports"},
			{letter: "c", name: "config", show: (*tool).config, json: "settings", help: "Show configuration, with the origin of what is not default"},
			{name: "why", show: (*tool).why, json: "refused", help: "Show each refused transport and device with its reason"},
			{
				name: "live", arg: "pid|path|all", value: &o.live, noArg: liveList, show: (*tool).liveView, json: "live",
				help: "List running programs that show themselves (UCX_STATS_DEST=unix);\nwith an argument: endpoints, pending requests and counters of one, or of all",
			},
			{
				name: "sharing", arg: "policy", value: &o.sharing, noArg: sharingAll, show: (*tool).sharingPolicies, json: "sharing",
				help: "Show the device resources that threads take under a sharing policy\n(UCX_THREAD_SHARING), or under each: objects are created on a software\ndevice with the account of mlx5",
			},
		}},
		{"Details of the configuration, which -f shows, and -C and -a if given alone:", []option{
			{letter: "C", name: "comment-out", value: &o.commentOut, help: "Comment-out default configuration values"},
			{letter: "a", name: "all", value: &o.all, help: "Show also hidden configuration (nothing is hidden)"},
			{letter: "f", name: "full", value: &o.full, help: "Display fully decorated output"},
			{letter: "F", name: "filter", arg: "text", value: &o.filter, help: "Show only settings whose name contains the text"},
		}},
		{"UCP information:", []option{
			{letter: "p", name: "context", show: (*tool).context, help: "Show UCP context information"},
			{letter: "w", name: "worker", show: (*tool).worker, help: "Show UCP worker information"},
			{letter: "e", name: "endpoint", show: (*tool).endpoint, help: "Show UCP endpoint configuration"},
			{letter: "m", name: "memory", arg: "size", value: &o.memory, show: (*tool).allocation, help: "Show UCP memory allocation for a given size"},
			{letter: "u", name: "features", arg: "features", value: &o.features, help: "UCP context features to use (default: all). String of one or more of:\n" +
				"  'a' : atomic operations\n  'r' : remote memory access\n  't' : tag matching\n  'm' : active messages\n" +
				"Modifiers, without effect since they always hold:\n  'w' : wakeup\n  'e' : error handling"},
		}},
		{"Other settings:", []option{
			{letter: "t", name: "transport", arg: "name", value: &o.transport, help: "Filter devices information using specified transport (-d);\nuse only this transport (-p, -w, -e, -m, -y, --why)"},
			{letter: "n", name: "num-eps", arg: "count", value: &o.endpoints, help: "Estimated UCP endpoint count, for the notes of -p on connections"},
			{letter: "N", name: "num-ppn", arg: "count", value: &o.perNode, help: "Estimated UCP endpoint count per node, likewise"},
			{letter: "D", name: "device-types", arg: "type", value: &o.types, help: "Set which device types to use when creating UCP context:\n" +
				"  'all'  : all possible devices (default)\n  'shm'  : shared memory devices only\n" +
				"  'net'  : network devices only\n  'self' : self transport only"},
			{letter: "P", name: "placement", arg: "type", value: &o.placement, help: "Set the peer whose endpoint is shown by -e and --why:\n" +
				"  'self'  : same worker (default)\n  'intra' : another worker of this host\n" +
				"  'inter' : a worker of another host: use --address instead"},
			{name: "address", arg: "file", value: &o.address, help: "The peer is the worker whose address is in the file"},
			{letter: "A", name: "local-ip", arg: "ip", value: &o.ip, help: "Local IP device address to use for creating\nendpoint in client/server mode: the peer of -e\nsends its worker address over a TCP connection there"},
			{name: "threads", arg: "count", value: &o.threads, help: "Threads of a process for --sharing"},
			{name: "qps-per-thread", arg: "count", value: &o.qps, help: "Queue pairs of a thread for --sharing (default: 1)"},
			{name: "processes", arg: "count", value: &o.processes, help: "Processes for --sharing (default: 1)"},
			{letter: "6", name: "ipv6", value: &o.ipv6, help: "IPv6 address specified with option -A"},
			{name: "json", value: &o.json, help: "Print -v, -d, -c, --why, --live and --sharing as one JSON object"},
			{name: "completion", arg: "shell", value: &o.completion, help: "Print the completion script of a shell: bash, zsh or fish"},
			{name: "man", value: &o.man, help: "Print the manual page, for man -l"},
			{letter: "h", name: "help", value: &o.help, help: "Show this help message"},
		}},
	}
}

// parse parses the command line.
func parse(args []string) (*options, error) {
	o := &options{}
	groups := table(o)
	set := flagSet(groups)
	if err := set.Parse(args); err != nil {
		return nil, usageError{err}
	}
	rest := set.Args()
	switch {
	case len(rest) == 0:
	case o.live == liveList: // as in --live 1234
		o.live, rest = rest[0], rest[1:]
	case o.sharing == sharingAll: // as in --sharing dynamic
		o.sharing, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 {
		return nil, usagef("unexpected argument %q", rest[0])
	}
	for _, g := range groups {
		for _, r := range g.rows {
			if r.show != nil && (set.Changed(r.name) || r.name == "config" && o.full) {
				o.sections = append(o.sections, r)
			}
		}
	}
	if len(o.sections) == 0 && (o.all || o.commentOut) {
		o.sections = slices.DeleteFunc(slices.Clone(groups[0].rows), func(r option) bool { return r.name != "config" })
	}
	return o, o.check()
}

func flagSet(groups []group) *pflag.FlagSet {
	set := pflag.NewFlagSet("ucx_info", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	for _, g := range groups {
		for _, r := range g.rows {
			switch v := r.value.(type) {
			case *string:
				set.StringVarP(v, r.name, r.letter, "", "")
				set.Lookup(r.name).NoOptDefVal = r.noArg
			case *bool:
				set.BoolVarP(v, r.name, r.letter, false, "")
			default:
				set.BoolP(r.name, r.letter, false, "")
			}
		}
	}
	return set
}

// check returns an error if options conflict.
func (o *options) check() error {
	switch {
	case o.help, o.man:
		return nil
	case o.completion != "":
		if !oneOf(o.completion, strings.Fields(cmdline.Shells)...) {
			return usagef("--completion %s: not one of %s", o.completion, cmdline.Shells)
		}
		return nil
	case len(o.sections) == 0:
		return usagef("nothing to show; -h lists the options")
	case o.transport != "" && !o.requested("devices", "context", "worker", "endpoint", "memory", "types", "why"):
		return usagef("-t chooses the transport of -d, -p, -w, -e, -m, -y or --why, and none is given")
	case o.filter != "" && !o.requested("config"):
		return usagef("-F filters the output of -c, which is not given")
	case o.address != "" && o.placement != "":
		return usagef("-P and --address both name the peer")
	case o.address != "" && o.ip != "":
		return usagef("-A and --address both name the peer")
	case o.ip != "" && !o.requested("endpoint"):
		return usagef("-A creates the endpoint of -e, which is not given")
	case o.ipv6 && o.ip == "":
		return usagef("-6 says that the address of -A is an IPv6 address, and -A is not given")
	case !oneOf(o.placement, "", "self", "intra", "inter"):
		return usagef("-P %s: not one of self, intra, inter", o.placement)
	case o.placement == "inter":
		return usagef("-P inter: there is no worker of another host here: give the address of one by --address: %w", ucs.ErrUnsupported)
	case !oneOf(o.types, "", "all", "shm", "net", "self"):
		return usagef("-D %s: not one of all, shm, net, self", o.types)
	}
	if _, err := parseFeatures(o.features); err != nil {
		return err
	}
	for _, c := range [][2]string{{"n", o.endpoints}, {"N", o.perNode}} {
		if n, err := strconv.ParseUint(c[1], 10, 31); c[1] != "" && (err != nil || n == 0) {
			return usagef("-%s %s: want a number from 1 to %d", c[0], c[1], math.MaxInt32)
		}
	}
	if err := errors.Join(o.checkIP(), o.checkSharing()); err != nil {
		return err
	}
	if o.json {
		for _, r := range o.sections {
			if r.json == "" {
				return usagef("--json prints -v, -d, -c, --why, --live and --sharing only, not --%s", r.name)
			}
		}
	}
	return nil
}

// checkIP returns an error if -A is no IP address, or not of the version that -6 says. An IPv6
// address needs no -6.
func (o *options) checkIP() error {
	if o.ip == "" {
		return nil
	}
	a, err := netip.ParseAddr(o.ip)
	switch {
	case err != nil:
		return usagef("-A %s: want an IP address of this host, as 127.0.0.1", o.ip)
	case o.ipv6 && !a.Is6():
		return usagef("-A %s: -6 says that it is an IPv6 address, and it is none", o.ip)
	}
	return nil
}

// maxSharingQPs is the most queue pairs that the threads of --sharing have.
const maxSharingQPs = 1 << 16

// checkSharing returns an error if --sharing and the options that go with it are invalid.
func (o *options) checkSharing() error {
	product := 1
	for _, c := range [][2]string{{"threads", o.threads}, {"qps-per-thread", o.qps}, {"processes", o.processes}} {
		switch n := number(c[1], 1); {
		case c[1] != "" && o.sharing == "":
			return usagef("--%s is a number of --sharing, which is not given", c[0])
		case n < 1 || n > maxSharingQPs:
			return usagef("--%s %s: want a number from 1 to %d", c[0], c[1], maxSharingQPs)
		default:
			product *= n
		}
	}
	if product > maxSharingQPs {
		return usagef("--sharing: %d queue pairs of all threads: want at most %d", product, maxSharingQPs)
	}
	if o.sharing == "" {
		return nil
	}
	if o.threads == "" {
		return usagef("--sharing needs the number of threads: give --threads")
	}
	if o.sharing != sharingAll {
		if _, err := sharing.Lookup(o.sharing); err != nil {
			return usageError{err}
		}
	}
	return nil
}

// number returns the value of a number, unset for "" and 0 for what is no number.
func number(text string, unset int) int {
	if text == "" {
		return unset
	}
	n, _ := strconv.ParseUint(text, 10, 31)
	return int(n)
}

// requested reports whether one of the named sections is to be shown.
func (o *options) requested(names ...string) bool {
	return slices.ContainsFunc(o.sections, func(r option) bool { return slices.Contains(names, r.name) })
}

func oneOf(s string, of ...string) bool { return slices.Contains(of, s) }
