package ucttest

import (
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/uct"
)

// Factory says what is tested. Everything else the suite learns from the
// capabilities of what it opens and from which addresses are reachable.
type Factory struct {
	// Component is the provider; required.
	Component uct.Component
	// Device names the device of the iface under test; "": the first iface of
	// the first domain that has one.
	Device string
	// Column of matrix.txt; "": that of the transport's name.
	Column string
	// Settings for domains and ifaces; nil: defaults.
	Settings *config.Set
	// Messages is the length of the long cases, in messages; 0: a million. That it is
	// always with GOUCX_TEST_LONG=1. With testing.Short, and under the race detector,
	// it is a twentieth.
	Messages int
	// Late: what is sent may come late or twice (a link with faults). Cases that want
	// it there at once, or nothing after it, do not apply.
	Late bool
	// Themes are those to run; nil, and always with GOUCX_TEST_LONG=1: all.
	Themes []string
}

// testCase is one property of the contract.
type testCase struct {
	name string
	run  func(*env)
}

// themes are the cases in the order in which they run. Together with the
// theme's name they are the rows of matrix.txt.
var themes = []struct {
	name  string
	cases []testCase
}{
	{"address", addressCases},
	{"am", amCases},
	{"order", orderCases},
	{"pending", pendingCases},
	{"reentrancy", reentrancyCases},
	{"progress", progressCases},
	{"mem", memCases},
	{"key", keyCases},
	{"put", putCases},
	{"get", getCases},
	{"rma", rmaCases},
	{"atomic", atomicCases},
	{"flush", flushCases},
	{"event", eventCases},
	{"active", activeCases},
	{"move", moveCases},
	{"close", closeCases},
	{"failure", failureCases},
	{"process", processCases},
}

// Run holds a transport to the contract of package uct: every case as a subtest
// theme/case. The outcomes must be those of the transport's column in
// matrix.txt.
//
// Cases with a second process start the test binary again with this test alone,
// so Run must be called at the top of a Test function, always with the same
// factory. testing.Short shortens the long ones.
func Run(t *testing.T, f Factory) {
	if isChild() {
		serve(t, f)
		return
	}
	m := readMatrix(t)
	transport := f.probe(t)
	for _, th := range themes {
		if f.Themes != nil && !long() && !slices.Contains(f.Themes, th.name) {
			continue
		}
		t.Run(th.name, func(t *testing.T) {
			for _, c := range th.cases {
				t.Run(c.name, func(t *testing.T) {
					e := &env{TB: t, factory: f}
					defer func() {
						if runtime.GOOS == "linux" { // of which the table is
							m.Compare(t, transport, th.name+"/"+c.name, e.reason)
						}
					}()
					c.run(e)
				})
			}
		})
	}
}

// long: everything is to be tested, however long that takes.
func long() bool { return os.Getenv("GOUCX_TEST_LONG") != "" }

// probe gives the column of the transport under test.
func (f Factory) probe(t testing.TB) string {
	if f.Column != "" {
		return f.Column
	}
	e := &env{TB: t, factory: f}
	d := e.domain()
	return e.info(d).Transport
}
