package verbstest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorder is a testing.TB that notes instead of failing, for cases that are
// meant to fail.
type recorder struct {
	testing.TB
	mu       sync.Mutex // guards what follows
	failed   bool
	log      []string
	cleanups []func()
}

func (r *recorder) note(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.log = append(r.log, text)
}

// Failed reports whether anything failed.
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// The methods of testing.TB that the suite and testify use.
func (r *recorder) Helper()                   {}
func (r *recorder) Fail()                     { r.note(true, "") }
func (r *recorder) FailNow()                  { r.note(true, ""); runtime.Goexit() }
func (r *recorder) Errorf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)) }
func (r *recorder) Fatalf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)); runtime.Goexit() }
func (r *recorder) Logf(f string, a ...any)   { r.note(false, fmt.Sprintf(f, a...)) }
func (r *recorder) Skip(a ...any)             { r.note(false, fmt.Sprint(a...)); runtime.Goexit() }
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }

func (r *recorder) text() string { return strings.Join(r.log, "\n") }

// alone ends with f, also where f ends its goroutine or panics.
func (r *recorder) alone(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.note(true, fmt.Sprint("panic: ", p))
			}
		}()
		f()
	}()
	<-done
}

// try runs a case and tells how it ended.
func (f Fixture) try(t testing.TB, c testCase, patience time.Duration) (r *recorder, reason string) {
	r = &recorder{TB: t}
	e := &env{TB: r, fixture: f, patience: patience}
	r.alone(func() { e.run(c) })
	for _, undo := range slices.Backward(r.cleanups) {
		r.alone(undo)
	}
	return r, e.reason
}
