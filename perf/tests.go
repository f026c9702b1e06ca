package perf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goucx/goucx/config"
)

// API is the layer that a test measures.
type API uint8

// The layers, with UCX's titles.
const (
	UCT API = iota
	UCP
	// Verbs is below both; UCX's tool does not have it.
	Verbs
)

// String returns the short name.
func (a API) String() string { return [...]string{"UCT", "UCP", "verbs"}[a] }

// Title returns the text after "API:": UCX's text, or goucx's own for verbs.
func (a API) Title() string { return [...]string{"transport layer", "protocol layer", "verbs"}[a] }

// Pattern is the communication pattern of a test.
type Pattern uint8

// Patterns.
const (
	// PingPong: one message at a time, back and forth; both sides send.
	PingPong Pattern = iota
	// RoundTrip: one side initiates, and each operation returns a result.
	RoundTrip
	// Stream: one side sends as fast as its window allows.
	Stream
)

// Op is the operation that a test repeats.
type Op uint8

// Operations.
const (
	OpAM Op = iota
	OpPut
	OpGet
	OpAdd
	OpFetchAdd
	OpSwap
	OpCompareSwap
	OpTag
	OpTagSync
	OpStream
	OpSend
	OpDatagram
	// OpSharedPut is an RDMA write of threads that share verbs objects by a plan.
	OpSharedPut
)

// Atomic reports whether the operation acts on a word of 4 or 8 bytes.
func (o Op) Atomic() bool { return o >= OpAdd && o <= OpCompareSwap }

// OneSided reports whether the operation acts on the other side's memory.
func (o Op) OneSided() bool { return o >= OpPut && o <= OpCompareSwap }

// unattended reports whether the passive side can do without progress: the test accesses its memory,
// and it sends nothing back.
func (t Test) unattended() bool { return t.Op.OneSided() && t.Pattern != PingPong }

// Test is a row of the table of tests.
type Test struct {
	// Name and Desc are UCX's, except for Verbs tests, which UCX does not have.
	Name, Desc string
	API        API
	Op         Op
	Pattern    Pattern
	// Unit is the title of the time columns: "latency" or "overhead".
	Unit string
	// Window is the default for the maximum number of outstanding operations.
	Window int
	// Later marks a test that UCX has and goucx does not support yet.
	Later bool
}

// Names of the time columns.
const (
	latency  = "latency"
	overhead = "overhead"
)

// later is the value of Test.Later in the table.
const later = true

// tests in UCX's order, then those that only goucx has.
//
// Source: tests[] of UCX 1.13's src/tools/perf/perftest.c; get_bw came after 1.13.
var tests = []Test{
	{"am_lat", "active message latency", UCT, OpAM, PingPong, latency, 1, false},
	{"put_lat", "put latency", UCT, OpPut, PingPong, latency, 1, false},
	{"add_lat", "atomic add latency", UCT, OpAdd, PingPong, latency, 1, false},
	{"get", "get latency / bandwidth / message rate", UCT, OpGet, RoundTrip, latency, 1, false},
	{"fadd", "atomic fetch-and-add latency / rate", UCT, OpFetchAdd, RoundTrip, latency, 1, false},
	{"swap", "atomic swap latency / rate", UCT, OpSwap, RoundTrip, latency, 1, false},
	{"cswap", "atomic compare-and-swap latency / rate", UCT, OpCompareSwap, RoundTrip, latency, 1, false},
	{"am_bw", "active message bandwidth / message rate", UCT, OpAM, Stream, overhead, 1, false},
	{"put_bw", "put bandwidth / message rate", UCT, OpPut, Stream, overhead, 32, false},
	{"get_bw", "get bandwidth / message rate", UCT, OpGet, Stream, overhead, 32, false},
	{"add_mr", "atomic add message rate", UCT, OpAdd, Stream, overhead, 1, false},
	{"tag_lat", "tag match latency", UCP, OpTag, PingPong, latency, 1, false},
	{"tag_bw", "tag match bandwidth", UCP, OpTag, Stream, overhead, 32, false},
	{"tag_sync_lat", "tag sync match latency", UCP, OpTagSync, PingPong, latency, 1, false},
	{"tag_sync_bw", "tag sync match bandwidth", UCP, OpTagSync, Stream, overhead, 32, false},
	{"ucp_put_lat", "put latency", UCP, OpPut, PingPong, latency, 1, false},
	{"ucp_put_bw", "put bandwidth", UCP, OpPut, Stream, overhead, 32, false},
	{"ucp_get", "get latency / bandwidth / message rate", UCP, OpGet, RoundTrip, latency, 1, false},
	{"ucp_add", "atomic add bandwidth / message rate", UCP, OpAdd, Stream, overhead, 1, false},
	{"ucp_fadd", "atomic fetch-and-add latency / bandwidth / rate", UCP, OpFetchAdd, RoundTrip, latency, 1, false},
	{"ucp_swap", "atomic swap latency / bandwidth / rate", UCP, OpSwap, RoundTrip, latency, 1, false},
	{"ucp_cswap", "atomic compare-and-swap latency / bandwidth / rate", UCP, OpCompareSwap, RoundTrip, latency, 1, false},
	{"stream_bw", "stream bandwidth", UCP, OpStream, Stream, overhead, 1, later},
	{"stream_lat", "stream latency", UCP, OpStream, PingPong, latency, 1, later},
	{"ucp_am_lat", "am latency", UCP, OpAM, PingPong, latency, 1, false},
	{"ucp_am_bw", "am bandwidth / message rate", UCP, OpAM, Stream, overhead, 32, false},

	{"verbs_send_lat", "send latency", Verbs, OpSend, PingPong, latency, 1, false},
	{"verbs_send_bw", "send bandwidth / message rate", Verbs, OpSend, Stream, overhead, 32, false},
	{"verbs_write_lat", "RDMA write latency", Verbs, OpPut, PingPong, latency, 1, false},
	{"verbs_write_bw", "RDMA write bandwidth / message rate", Verbs, OpPut, Stream, overhead, 32, false},
	{"verbs_read_lat", "RDMA read latency", Verbs, OpGet, RoundTrip, latency, 1, false},
	{"verbs_read_bw", "RDMA read bandwidth / message rate", Verbs, OpGet, Stream, overhead, 16, false},
	{"verbs_fadd_lat", "atomic fetch-and-add latency", Verbs, OpFetchAdd, RoundTrip, latency, 1, false},
	{"verbs_fadd_bw", "atomic fetch-and-add rate", Verbs, OpFetchAdd, Stream, overhead, 16, false},
	{"verbs_ud_send_lat", "datagram latency", Verbs, OpDatagram, PingPong, latency, 1, false},
	{"verbs_ud_send_bw", "datagram bandwidth / message rate", Verbs, OpDatagram, Stream, overhead, 32, false},
	{"verbs_rate", "RDMA write message rate of threads that share verbs objects", Verbs, OpSharedPut, Stream, overhead, 128, false},
}

// Tests returns a copy of the table: UCX's tests in its order, then those that only goucx has.
func Tests() []Test { return slices.Clone(tests) }

// Lookup returns the test with the given name. The error for an unknown name suggests the nearest
// one, or lists all.
func Lookup(name string) (Test, error) {
	known := make([]string, 0, len(tests))
	for _, t := range tests {
		if t.Name == name {
			return t, nil
		}
		if !t.Later {
			known = append(known, t.Name)
		}
	}
	if n := config.Nearest(name, known); n != "" {
		return Test{}, fmt.Errorf("unknown test %q; did you mean %s?", name, n)
	}
	return Test{}, fmt.Errorf("unknown test %q; known are %s", name, strings.Join(known, " "))
}
