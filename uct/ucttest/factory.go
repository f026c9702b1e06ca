package ucttest

import (
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/uct"
)

// Factory describes the transport under test. The suite derives the rest from the capabilities of
// what it opens and from which addresses are reachable.
type Factory struct {
	// Component is the provider; required.
	Component uct.Component
	// Device is the device of the iface under test; "": the first iface of the first domain that
	// has one.
	Device string
	// Column of matrix.txt; "": the transport's name.
	Column string
	// Settings for domains and ifaces; nil: defaults.
	Settings *config.Set
	// Messages is the number of messages of the long cases; 0: 100,000. With GOUCX_TEST_LONG=1
	// it is always a million. With testing.Short and under the race detector it is a twentieth.
	Messages int
	// Late: messages may arrive late or twice (a link with faults). Cases that need prompt
	// arrival, or silence after it, do not apply.
	Late bool
	// Themes to run; nil, and always with GOUCX_TEST_LONG=1: all.
	Themes []string
	// Resources of the ifaces.
	Resources uct.Resources
}

// testCase tests one property of the contract.
type testCase struct {
	name string
	run  func(*env)
}

// themes lists the cases in the order in which they run. Theme and case name are the rows of
// matrix.txt.
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
	{"copy", copyCases},
	{"event", eventCases},
	{"active", activeCases},
	{"move", moveCases},
	{"close", closeCases},
	{"failure", failureCases},
	{"process", processCases},
}

// Run tests a transport against the contract of package uct, with every case as a subtest
// theme/case. The outcomes must equal those in the transport's column of matrix.txt.
//
// Cases with a second process run the test binary again with only this test. So Run must be called
// at the top of a Test function, always with the same factory. testing.Short shortens the long
// cases.
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
						if runtime.GOOS == "linux" { // the table is for Linux
							m.Compare(t, transport, th.name+"/"+c.name, e.reason)
						}
					}()
					c.run(e)
				})
			}
		})
	}
}

// long reports whether everything is to be tested, however long it takes.
func long() bool { return os.Getenv("GOUCX_TEST_LONG") != "" }

// probe returns the column of the transport under test.
func (f Factory) probe(t testing.TB) string {
	if f.Column != "" {
		return f.Column
	}
	e := &env{TB: t, factory: f}
	d := e.domain()
	return e.info(d).Transport
}
