package rxe

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/test/rxe/vm"
)

// rdmapeerIBV is rdmapeer with the provider of package verbs/ibv.
var rdmapeerIBV = binary{"rdmapeer-ibv", "build", "internal/rdmapeer", []string{"-tags=ibverbs"}, true}

// ibvExchanges are runs of rdmapeer over libibverbs on rxe1 with a program on rxe0: one for each kind of operation.
var ibvExchanges = []exchange{
	{program: "ibv_rc_pingpong", options: "-n 50", short: true},
	{program: "ibv_srq_pingpong", options: "-n 20 -q 4 -s 1000", ipv6: true},
	{program: "ib_send_bw", options: "-n 100 -s 10000 -m 1024 -q 4 -b"},
	{program: "ib_send_lat", options: "-n 50 -s 1000 -c UD"},
	{program: "ib_send_lat", options: "-n 100 -s 64 -I 64 -e"},
	{program: "ib_write_lat", options: "-n 100 -s 8"},
	{program: "ib_write_bw", options: "-n 50 -s 65536 -q 4", ipv6: true},
	{program: "ib_read_bw", options: "-n 50 -s 65536 -q 4"},
	{program: "ib_atomic_bw", options: "-n 100 -b"},
}

// ibvSide returns the side of rdmapeer on rxe1.
func (x *exchange) ibvSide(server ...string) vm.Job {
	gid := map[bool]string{false: "1", true: "2"}[x.ipv6]
	argv := []string{rdmapeerIBV.name, "-provider", "ibv", "-d", "rxe1", "-x", gid, "-limit", "35s"}
	argv = append(argv, strings.Fields(x.options)...)
	return vm.Job{Argv: slices.Concat(argv, []string{x.program}, server), Limit: exchangeLimit}
}

// TestPeerOverIBV: rdmapeer, and so each kind of operation of package verbs/ibv, works with the programs of
// rdma-core and perftest, as server and as client. rdmapeer checks the data.
func TestPeerOverIBV(t *testing.T) {
	defer spent("programs against rdmapeer over libibverbs", time.Now())
	for _, x := range ibvExchanges {
		if testing.Short() && !x.short {
			continue
		}
		t.Run(x.program+" "+x.options, func(t *testing.T) {
			provide(t, rdmapeerIBV)
			s, _ := runPair(t, x.ibvSide(), x.rxeSide("10.77.0.3"))
			assert.Contains(t, s.Stdout, "verified")
			_, c := runPair(t, x.rxeSide(""), x.ibvSide("10.77.0.1"))
			assert.Contains(t, c.Stdout, "verified")
		})
	}
}
