package main

import (
	"fmt"
	"strings"
)

// metric is the figure of a run that is compared.
type metric uint8

const (
	latency metric = iota // us, less is better
	rate                  // messages a second, more is better
)

// row is one test of both tools.
type row struct {
	test      string
	size      int
	metric    metric
	both      string   // options of both tools, a part of the title
	ours, ucx []string // options of one tool alone
	variants  []variant
}

// variant is a way to run our tool, compared with UCX's one run of the round.
type variant struct {
	option    string  // "": none
	env       string  // a setting of ours, "": none
	must, aim float64 // of the ratio ours/UCX; 0: printed only
}

// name is what the table adds to the row's.
func (v variant) name() string { return strings.TrimSpace(v.option + " " + v.env) }

// stampEach has our stream tests read the clock for each message, as UCX's
// always do.
const stampEach = "--stamp-each"

// allRows is what is measured, with its targets.
var allRows = []row{
	{test: "tag_lat", size: 8, metric: latency, variants: []variant{{must: 0.65, aim: 0.52}}},
	{
		test: "am_lat", size: 8, metric: latency, variants: []variant{{must: 0.65, aim: 0.52}},
		ours: []string{"-x", "shm", "-d", "memory", "-D", "short"},
		ucx:  []string{"-x", "posix", "-d", "memory", "-D", "short"},
	},
	{test: "tag_lat", size: 1024, metric: latency, variants: []variant{{must: 0.8, aim: 0.58}}},
	{test: "ucp_put_lat", size: 8, metric: latency, variants: []variant{{must: 1.1, aim: 0.92}}},
	{test: "tag_bw", size: 8, metric: rate, variants: []variant{{must: 3, aim: 5}}},
	{test: "tag_bw", size: 1024, metric: rate, variants: []variant{{must: 1, aim: 1.4}}},
	{test: "ucp_put_bw", size: 8, metric: rate, variants: oneSided},
	{test: "ucp_get", size: 8, metric: rate, variants: oneSided},
	{test: "ucp_fadd", size: 8, metric: rate, variants: oneSided},
	{test: "tag_sync_lat", size: 8, metric: latency, variants: []variant{{must: 0.8, aim: 0.6}}},
	{test: "ucp_am_lat", size: 8, metric: latency, variants: []variant{{must: 0.65, aim: 0.52}}},
	{test: "ucp_am_lat", size: 1024, metric: latency, variants: []variant{{must: 0.9, aim: 0.75}}},
	{test: "ucp_am_bw", size: 8, metric: rate, variants: []variant{{must: 2.5, aim: 4}}},
	{test: "tag_bw", size: 8, metric: rate, both: "-M multi", variants: []variant{{must: 2, aim: 3.5}}},
	{test: "tag_lat", size: 8, metric: latency, both: "-E sleep", variants: []variant{{env: "UCX_SPIN_TIME=0", must: 1.1, aim: 0.95}, {}}},
	{test: "tag_lat", size: 64 << 10, metric: latency, variants: printed},
	{test: "tag_lat", size: 1 << 20, metric: latency, variants: printed},
	{test: "tag_bw", size: 64 << 10, metric: rate, variants: printed},
	{test: "tag_bw", size: 1 << 20, metric: rate, variants: printed},
	{test: "ucp_put_bw", size: 64 << 10, metric: rate, variants: printed},
	{test: "ucp_put_bw", size: 1 << 20, metric: rate, variants: printed},
}

var (
	oneSided = []variant{{must: 3, aim: 4.5}, {option: stampEach, must: 1.1, aim: 1.4}}
	printed  = []variant{{}}
)

func (r row) title() string {
	return strings.TrimSpace(fmt.Sprintf("%s %d %s", r.test, r.size, r.both))
}

// pingPong reports whether an iteration is two messages.
func (r row) pingPong() bool { return r.metric == latency }

// args are the options of a client, without those of its place.
func (r row) args(n int, more ...string) []string {
	args := []string{"-t", r.test, "-s", fmt.Sprint(r.size), "-n", fmt.Sprint(n)}
	return append(append(args, strings.Fields(r.both)...), more...)
}
