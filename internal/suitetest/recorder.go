package suitetest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Recorder is a testing.TB that notes instead of failing, for cases that are
// meant to fail.
type Recorder struct {
	testing.TB
	mu       sync.Mutex // guards what follows
	failed   bool
	log      []string
	cleanups []func()
}

func (r *Recorder) note(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.log = append(r.log, text)
}

// Failed reports whether anything failed.
func (r *Recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Helper does nothing.
func (r *Recorder) Helper() {}

// Fail notes a failure.
func (r *Recorder) Fail() { r.note(true, "") }

// FailNow notes a failure and ends the goroutine.
func (r *Recorder) FailNow() { r.note(true, ""); runtime.Goexit() }

// Errorf notes a failure.
func (r *Recorder) Errorf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)) }

// Fatalf notes a failure and ends the goroutine.
func (r *Recorder) Fatalf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)); runtime.Goexit() }

// Logf notes a line.
func (r *Recorder) Logf(f string, a ...any) { r.note(false, fmt.Sprintf(f, a...)) }

// Skip notes the reason and ends the goroutine.
func (r *Recorder) Skip(a ...any) { r.note(false, fmt.Sprint(a...)); runtime.Goexit() }

// Cleanup has End call f.
func (r *Recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// Text is what was noted.
func (r *Recorder) Text() string { return strings.Join(r.log, "\n") }

// Alone ends with f, also where f ends its goroutine or panics.
func (r *Recorder) Alone(f func()) {
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

// End runs what Cleanup was given, last first.
func (r *Recorder) End() {
	for _, undo := range slices.Backward(r.cleanups) {
		r.Alone(undo)
	}
}
