package verbstest

import (
	"testing"
	"time"

	"github.com/goucx/goucx/internal/suitetest"
)

// try runs a case and tells how it ended.
func (f Fixture) try(t testing.TB, c testCase, patience time.Duration) (r *suitetest.Recorder, reason string) {
	r = &suitetest.Recorder{TB: t}
	e := &env{TB: r, fixture: f, patience: patience}
	r.Alone(func() { e.run(c) })
	r.End()
	return r, e.reason
}
