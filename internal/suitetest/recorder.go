package suitetest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Recorder is a testing.TB that records failures instead of failing, for cases that are expected
// to fail.
type Recorder struct {
	testing.TB
	mu       sync.Mutex // guards the following fields
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

// Failed reports whether a failure was recorded.
func (r *Recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Helper does nothing.
func (r *Recorder) Helper() {}

// Fail records a failure.
func (r *Recorder) Fail() { r.note(true, "") }

// FailNow records a failure and ends the goroutine.
func (r *Recorder) FailNow() { r.note(true, ""); runtime.Goexit() }

// Errorf records a failure.
func (r *Recorder) Errorf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)) }

// Fatalf records a failure and ends the goroutine.
func (r *Recorder) Fatalf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)); runtime.Goexit() }

// Logf records a line.
func (r *Recorder) Logf(f string, a ...any) { r.note(false, fmt.Sprintf(f, a...)) }

// Skip records the reason and ends the goroutine.
func (r *Recorder) Skip(a ...any) { r.note(false, fmt.Sprint(a...)); runtime.Goexit() }

// Cleanup registers f for End.
func (r *Recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// Text returns the recorded text.
func (r *Recorder) Text() string { return strings.Join(r.log, "\n") }

// Alone returns when f has ended, also if f ends its goroutine or panics.
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

// End calls the functions passed to Cleanup, last first.
func (r *Recorder) End() {
	for _, undo := range slices.Backward(r.cleanups) {
		r.Alone(undo)
	}
}
