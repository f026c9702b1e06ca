package main

import (
	"fmt"
	"slices"
	"strings"
)

// metric is the compared figure of a run.
type metric uint8

const (
	latency metric = iota // us, lower is better
	rate                  // messages per second, higher is better
)

// row is one test of both tools.
type row struct {
	test      string
	against   string // UCX's test; "": the one of the same name
	ownBase   bool   // compared with goucx without a variant, not with UCX
	size      int
	metric    metric
	over      medium
	form      form     // form of goucx's run
	ucxForm   form     // form of UCX's run
	both      string   // options of both tools, a part of the title
	ours, ucx []string // options of one tool alone
	variants  []variant
}

// medium is the path of the messages.
type medium uint8

const (
	sharedMemory medium = iota
	loopback            // goucx over UDP, UCX over TCP, through the interface lo
	program             // goucx over the in-process link, UCX over shared memory
	loopbackRC          // as loopback, with goucx's transport rc
	loopbackUD          // with ud
	numMediums
)

// environments are the settings of both tools by medium.
var environments = [numMediums]struct{ goucx, ucx []string }{
	sharedMemory: {[]string{"UCX_TLS=shm,self"}, []string{"UCX_TLS=sm,self"}},
	loopback:     {[]string{"UCX_SOFT_LINK=udp", "UCX_SOFT_ADDR=127.0.0.1"}, []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"}},
	program:      {[]string{"UCX_SOFT_LINK=inproc"}, []string{"UCX_TLS=sm"}},
	loopbackRC:   {[]string{"UCX_TLS=rc", "UCX_NET_DEVICES=lo"}, []string{"UCX_TLS=tcp", "UCX_NET_DEVICES=lo"}},
	loopbackUD:   {[]string{"UCX_TLS=ud", "UCX_NET_DEVICES=lo"}, []string{"UCX_TLS=tcp", "UCX_NET_DEVICES=lo"}},
}

// form is the number of processes and threads of a run.
type form uint8

const (
	twoProcesses form = iota // each on its own core
	oneThread                // one process that sends to itself
	twoThreads               // one process, each thread on its own core
)

// formNames are the names of forms in the title of a row; two processes have none.
var formNames = [...]string{twoProcesses: "", oneThread: "one thread", twoThreads: "two threads"}

// variant is a way to run goucx's tool. All variants of a round are compared with one run of UCX.
type variant struct {
	option    string  // "": none
	env       string  // a setting of goucx, "": none
	must, aim float64 // of the ratio goucx/UCX; 0: only printed
}

// name returns what the variant adds to the row's name.
func (v variant) name() string { return strings.TrimSpace(v.option + " " + v.env) }

// stampEach makes goucx's stream tests read the clock for each message, as UCX's do.
const stampEach = "--stamp-each"

// allRows lists all measurements with their targets.
var allRows = slices.Concat(hostRows, netRows, threadRows)

// hostRows are the rows within a host, including those of the software RNIC.
var hostRows = []row{
	{test: "tag_lat", size: 8, metric: latency, variants: []variant{{must: 0.48, aim: 0.36}}},
	{
		test: "am_lat", size: 8, metric: latency, variants: []variant{{must: 0.48, aim: 0.36}},
		ours: []string{"-x", "shm", "-d", "memory", "-D", "short"},
		ucx:  []string{"-x", "posix", "-d", "memory", "-D", "short"},
	},
	{test: "tag_lat", size: 1 << 10, metric: latency, variants: []variant{{must: 0.6, aim: 0.5}, heap}},
	{test: "tag_lat", size: 8 << 10, metric: latency, variants: []variant{{must: 0.75, aim: 0.5}, heap}},
	{test: "tag_lat", size: 64 << 10, metric: latency, variants: []variant{{must: 0.6, aim: 0.45}, heap.bounds(0.85, 0.7)}},
	{test: "tag_lat", size: 1 << 20, metric: latency, variants: []variant{{must: 0.6, aim: 0.45}, heap.bounds(0.65, 0.5)}},
	{test: "tag_lat", size: 4 << 20, metric: latency, variants: []variant{{must: 0.6, aim: 0.45}, heap.bounds(0.65, 0.5)}},
	{test: "ucp_put_lat", size: 8, metric: latency, variants: []variant{{must: 1, aim: 0.9}, heap}},
	{test: "tag_bw", size: 8, metric: rate, variants: []variant{{must: 3, aim: 5}}},
	{test: "tag_bw", size: 1 << 10, metric: rate, variants: []variant{{must: 1.3, aim: 2}, heap}},
	{test: "tag_bw", size: 4 << 10, metric: rate, variants: []variant{{must: 1.4, aim: 2}, heap}},
	{test: "tag_bw", size: 64 << 10, metric: rate, variants: []variant{{must: 1.3, aim: 2}, heap}},
	{test: "tag_bw", size: 1 << 20, metric: rate, variants: []variant{{must: 1.4, aim: 2}, heap}},
	{test: "ucp_put_bw", size: 8, metric: rate, variants: oneSided},
	{test: "ucp_put_bw", size: 64 << 10, metric: rate, variants: []variant{{must: 1, aim: 1.2}, heap}},
	{test: "ucp_put_bw", size: 1 << 20, metric: rate, variants: []variant{{must: 1, aim: 1.2}, heap}},
	{test: "ucp_get", size: 8, metric: rate, variants: oneSided},
	{test: "ucp_fadd", size: 8, metric: rate, variants: oneSided},
	{test: "tag_sync_lat", size: 8, metric: latency, variants: []variant{{must: 0.8, aim: 0.6}}},
	{test: "ucp_am_lat", size: 8, metric: latency, variants: []variant{{must: 0.65, aim: 0.52}}},
	{test: "ucp_am_lat", size: 1 << 10, metric: latency, variants: []variant{{must: 0.9, aim: 0.75}, heap}},
	{test: "ucp_am_bw", size: 8, metric: rate, variants: []variant{{must: 2.5, aim: 4}}},
	{test: "tag_lat", size: 8, metric: latency, both: "-M multi", variants: []variant{{must: 0.6, aim: 0.4}}},
	{test: "tag_bw", size: 8, metric: rate, both: "-M multi", variants: []variant{{must: 2.5, aim: 4}}},
	{test: "tag_lat", size: 8, metric: latency, both: "-E sleep", variants: []variant{{env: "UCX_SPIN_TIME=0", must: 1.1, aim: 0.95}, {}}},

	// The software RNIC, whose tests UCX does not have.
	{
		test: "verbs_send_lat", against: "tag_lat", size: 8, metric: latency, over: program,
		form: oneThread, ucxForm: oneThread, variants: []variant{{must: 3, aim: 1.7}},
	},
	{test: "verbs_send_lat", against: "tag_lat", size: 8, metric: latency, over: program, form: twoThreads, variants: []variant{{must: 0.9, aim: 0.65}}},
	{test: "verbs_write_lat", against: "tag_lat", size: 8, metric: latency, over: loopback, variants: []variant{{must: 0.75, aim: 0.65}}},
	{test: "verbs_write_bw", against: "tag_bw", size: 1 << 20, metric: rate, over: loopback, variants: []variant{{must: 0.75, aim: 0.95}}},
	{test: "verbs_write_bw", against: "ucp_put_bw", size: 1 << 20, metric: rate, over: loopback, variants: []variant{{must: 2, aim: 2.6}}},
	{test: "verbs_send_bw", against: "tag_bw", size: 8, metric: rate, over: loopback, variants: []variant{
		{option: "-O 32", must: 8, aim: 12}, {option: "-O 256 --post-list 64", must: 20, aim: 33},
	}},
}

// netRows compare the transports over verbs with UCX over TCP, through lo.
var netRows = []row{
	uctRow("am_lat", 8, latency, loopbackRC, "", variant{must: 0.85, aim: 0.7}),
	uctRow("am_bw", 8, rate, loopbackRC, "", variant{must: 6, aim: 15}),
	uctRow("put_lat", 8, latency, loopbackRC, "short", variant{must: 0.6, aim: 0.45}),
	uctRow("put_bw", 1<<20, rate, loopbackRC, "zcopy", variant{must: 0.6, aim: 0.8}),
	uctRow("am_lat", 8, latency, loopbackUD, "", variant{must: 0.9, aim: 0.65}),
	uctRow("am_bw", 2048, rate, loopbackUD, "", variant{must: 1.5, aim: 2.5}),
	{test: "tag_lat", size: 8, metric: latency, over: loopbackRC, variants: []variant{{must: 0.78, aim: 0.7}}},
	{test: "tag_bw", size: 8, metric: rate, over: loopbackRC, variants: []variant{{must: 10, aim: 20}}},
	{test: "tag_bw", size: 1 << 20, metric: rate, over: loopbackRC, variants: []variant{{must: 0.65, aim: 0.9}}},
	{test: "ucp_put_lat", size: 8, metric: latency, over: loopbackRC, variants: []variant{{must: 0.5, aim: 0.4}}},
	{test: "ucp_put_bw", size: 1 << 20, metric: rate, over: loopbackRC, variants: []variant{{must: 1.7, aim: 2.4}}},
	{test: "tag_lat", size: 8, metric: latency, over: loopbackUD, variants: []variant{{must: 0.9, aim: 0.7}}},
}

// threadRows compare Threads of one worker with workers, and both with UCX's. Two threads of a process
// take turns on its core.
var threadRows = []row{
	{test: "tag_bw", size: 8, metric: rate, both: "-T 2", ownBase: true, variants: sharing},
	{test: "ucp_put_bw", size: 8, metric: rate, both: "-T 2", ownBase: true, variants: sharing},
	{test: "ucp_put_bw", size: 8, metric: rate, over: loopbackRC, both: "-T 2", ownBase: true, variants: sharing},
	{test: "tag_bw", size: 8, metric: rate, ownBase: true, variants: sharing},
	{test: "ucp_put_bw", size: 8, metric: rate, ownBase: true, variants: sharing},
	{test: "tag_lat", size: 8, metric: latency, ownBase: true, variants: sharing},
	{test: "ucp_put_lat", size: 8, metric: latency, ownBase: true, variants: sharing},
	{test: "tag_bw", size: 8, metric: rate, both: "-T 2", variants: append(printed, sharing...)},
	{test: "tag_bw", size: 8, metric: rate, both: "-T 2 -M multi", variants: append(printed, variant{option: "--sharing mpi-threads"})},
	{test: "ucp_put_bw", size: 8, metric: rate, both: "-T 2", variants: append(printed, sharing...)},
	{test: "ucp_put_bw", size: 8, metric: rate, both: "-T 2 -M multi", variants: append(printed, variant{option: "--sharing mpi-threads"})},
}

// uctRow returns a test of UCT over rc or ud. layout is goucx's layout of a put, which UCX's TCP
// supports as zcopy only; "": active messages, short on both sides.
func uctRow(test string, size int, m metric, over medium, layout string, v variant) row {
	goucxLayout, ucxLayout := "short", "short"
	if layout != "" {
		goucxLayout, ucxLayout = layout, "zcopy"
	}
	return row{
		test: test, size: size, metric: m, over: over, variants: []variant{v},
		ours: []string{"-x", transports[over], "-d", "lo", "-D", goucxLayout},
		ucx:  []string{"-x", "tcp", "-d", "lo", "-D", ucxLayout},
	}
}

// transports are the goucx transports that a row's name contains.
var transports = [numMediums]string{loopbackRC: "rc", loopbackUD: "ud"}

var (
	oneSided = []variant{{must: 3, aim: 4.5}, {option: stampEach, must: 1.1, aim: 1.4}}
	printed  = []variant{{}}
	sharing  = []variant{{option: "--sharing dynamic"}}
	// heap has goucx's buffers in the heap of Go, where the other rows have them in memory that the
	// context allocated, as UCX's tool has.
	heap = variant{option: "-m heap"}
)

// bounds returns the variant with a must and an aim.
func (v variant) bounds(must, aim float64) variant {
	v.must, v.aim = must, aim
	return v
}

// name returns the row's name in the table, without its size.
func (r row) name() string { return r.words() }

func (r row) title() string { return r.words(fmt.Sprint(r.size), r.both) }

// words returns the row's name, with more after the test's name.
func (r row) words(more ...string) string {
	words := append(append([]string{r.test}, more...), formNames[r.form])
	if t := transports[r.over]; t != "" && len(r.ours) > 0 {
		words = append(words, "of", t)
	} else if t != "" {
		words = append(words, "over", t)
	}
	if r.against != "" {
		words = append(words, "against", r.against)
	}
	if r.ownBase {
		words = append(words, "against goucx")
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// pingPong reports whether an iteration is two messages.
func (r row) pingPong() bool { return r.metric == latency }

// ucxFigure returns the figure of UCX's run. A UCX process that sends to itself sends one message
// per iteration and reports half of its time.
func (r row) ucxFigure(f figures) float64 {
	if r.ucxForm == oneThread && r.pingPong() {
		return 2 * f.of(r.metric)
	}
	return f.of(r.metric)
}

// oursArgs returns the options of goucx's client for n iterations.
func (r row) oursArgs(v variant, n int) []string {
	return append(r.args(r.test, n, r.ours), strings.Fields(v.option)...)
}

// ucxArgs returns the options of UCX's client.
func (r row) ucxArgs(n int) []string {
	test := r.against
	if test == "" {
		test = r.test
	}
	return r.args(test, n, r.ucx)
}

// args returns the options of a client, without those of its core and port.
func (r row) args(test string, n int, own []string) []string {
	args := []string{"-t", test, "-s", fmt.Sprint(r.size), "-n", fmt.Sprint(n)}
	return append(append(args, strings.Fields(r.both)...), own...)
}
