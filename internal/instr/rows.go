package main

// row is a line of the table: an operation under some settings.
type row struct {
	op    string // name in perf.CountedOps
	title string // title of the line; "": op
	env   []string
	ucx13 string // count of UCX 1.13, "" if not measured
	ucx   string // count of its master of August 2026
	must  float64
	aim   float64 // 0: none
}

func (r row) name() string {
	if r.title != "" {
		return r.title
	}
	return r.op
}

// counts returns how often the row is counted: more often if it has a must.
func (r row) counts() int {
	if r.must > 0 {
		return 5
	}
	return 1
}

// rows is the table. UCX's figures: one process, two workers over posix shared memory, counted in
// the same way.
var rows = []row{
	{op: "put 8 B", ucx13: "108", ucx: "103", must: 50},
	{op: "put 8 B + flush", ucx13: "334", must: 200},
	{op: "get 8 B", ucx13: "303", ucx: "1163"},
	{op: "fetch-add 8 B", ucx13: "254", ucx: "316"},
	{op: "flush", must: 200},
	{op: "fence", ucx13: "199", must: 120},
	{op: "tag 8 B pair", ucx13: tagPair, ucx: "574", must: 450, aim: 400},
	{op: "am 8 B pair", ucx13: "532", ucx: "410", must: 340},
	{op: "idle progress, sender", ucx13: "103", ucx: "79", must: 40},
	{op: "idle progress, receiver", ucx13: "44", ucx: "36", must: 40},
	{op: "tag 8 B pair, multi", must: 750},
	{op: "put 8 B, by a Thread", must: 54},
	{op: "tag 8 B pair, by a Thread", must: 454},
	{op: "RC send 8 B pair", ucx13: tagPair, ucx: "574", must: 3 * 692, aim: 1.7 * 692},

	{op: "put 8 B", title: "put 8 B, key resolved at each", env: lateKeys},
	{op: "get 8 B", title: "get 8 B, key resolved at each", env: lateKeys},
	{op: "fetch-add 8 B", title: "fetch-add 8 B, key resolved at each", env: lateKeys},
	{op: "idle progress, receiver", title: "idle progress, idle interfaces too", env: everyIface},
	{op: "tag 8 B pair", title: "tag 8 B pair, idle interfaces too", env: everyIface},
}

// tagPair is UCX's message within one process, with which the software RNIC's send is also
// compared.
const tagPair = "692"

// Settings that make goucx repeat at each operation what it otherwise does once or not at all, for
// comparison.
var (
	lateKeys   = []string{"UCX_RKEY_PRERESOLVE=n"}
	everyIface = []string{"UCX_IDLE_SKIP=n"}
)
