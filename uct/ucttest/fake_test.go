package ucttest

import (
	"runtime"
	"testing"

	"github.com/goucx/goucx/internal/suitetest"
)

// tryCase runs one case of the suite and tells how it ended.
func tryCase(t *testing.T, f Factory, name string) (r *suitetest.Recorder, reason string) {
	r = &suitetest.Recorder{TB: t}
	e := &env{TB: r, factory: f}
	r.Alone(func() { findCase(t, name).run(e) })
	r.End()
	return r, e.reason
}

func findCase(t *testing.T, name string) testCase {
	for _, th := range themes {
		for _, c := range th.cases {
			if th.name+"/"+c.name == name {
				return c
			}
		}
	}
	t.Errorf("no case %s", name)
	runtime.Goexit()
	return testCase{}
}
