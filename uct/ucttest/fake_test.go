package ucttest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recorder is a testing.TB that notes instead of failing.
type recorder struct {
	testing.TB
	mu       sync.Mutex
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

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Helper()                   {}
func (r *recorder) Fail()                     { r.note(true, "") }
func (r *recorder) FailNow()                  { r.note(true, ""); runtime.Goexit() }
func (r *recorder) Errorf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)) }
func (r *recorder) Fatalf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)); runtime.Goexit() }
func (r *recorder) Logf(f string, a ...any)   { r.note(false, fmt.Sprintf(f, a...)) }
func (r *recorder) Skip(a ...any)             { r.note(false, fmt.Sprint(a...)); runtime.Goexit() }
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) text() string              { return strings.Join(r.log, "\n") }
func (r *recorder) alone(f func())            { done := make(chan struct{}); go runAlone(r, f, done); <-done }

// runAlone ends with f, also where f ends its goroutine or panics.
func runAlone(r *recorder, f func(), done chan struct{}) {
	defer close(done)
	defer func() {
		if p := recover(); p != nil {
			r.note(true, fmt.Sprint("panic: ", p))
		}
	}()
	f()
}

// tryCase runs one case of the suite and tells how it ended.
func tryCase(t *testing.T, f Factory, name string) (r *recorder, reason string) {
	r = &recorder{TB: t}
	e := &env{TB: r, factory: f}
	r.alone(func() { findCase(t, name).run(e) })
	for _, c := range slices.Backward(r.cleanups) {
		r.alone(c)
	}
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
