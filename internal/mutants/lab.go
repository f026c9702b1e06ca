package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// outcome is the result of a mutant.
type outcome string

const (
	killed   outcome = "failed as it should"
	hung     outcome = "hung, so failed"
	survived outcome = "SURVIVED"
	invalid  outcome = "NOT JUDGED"
)

// A test of a broken tree counts as hung after patience times its duration without the mutant,
// including the build, and not before atLeast.
const (
	soundLimit = 4 * time.Minute
	patience   = 4
	atLeast    = 15 * time.Second
)

// lab is a copy of the tree in which the code is broken.
type lab struct {
	dir      string
	unbroken map[string]trial // results of tests without any mutant
}

// trial is the result of a test in the unmodified tree.
type trial struct {
	err  error
	took time.Duration
}

// newLab copies the tree without git's files and build results.
func newLab(ctx context.Context) (*lab, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, unbroken: make(map[string]trial)}
	copying := exec.CommandContext(ctx, "sh", "-c", `tar --exclude=./.git --exclude=./bin -cf - . | tar -xf - -C "$1"`, "sh", dir)
	if out, err := copying.CombinedOutput(); err != nil {
		l.close()
		return nil, fmt.Errorf("copy the tree: %w: %s", err, out)
	}
	return l, nil
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

// try runs the mutant's test without and with it.
func (l *lab) try(ctx context.Context, m mutant) (outcome, error) {
	without := l.withoutMutant(ctx, m)
	if without.err != nil {
		return invalid, fmt.Errorf("the test fails without it: %w", without.err)
	}
	file := filepath.Join(l.dir, m.file)
	sound, err := os.ReadFile(file)
	if err != nil {
		return invalid, err
	}
	broken, err := m.apply(string(sound))
	if err != nil {
		return invalid, err
	}
	if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
		return invalid, err
	}
	var out string
	for range max(m.tries, 1) {
		if out, err = l.test(ctx, m, max(atLeast, patience*without.took)); err != nil {
			break
		}
	}
	return classify(out, err), errors.Join(complaint(classify(out, err), out), os.WriteFile(file, sound, 0o600))
}

// withoutMutant runs the test in the unmodified tree, once for all mutants that it kills.
func (l *lab) withoutMutant(ctx context.Context, m mutant) trial {
	t, known := l.unbroken[m.where()]
	if !known {
		began := time.Now()
		out, err := l.test(ctx, m, soundLimit)
		t = trial{err, time.Since(began)}
		if err != nil {
			t.err = fmt.Errorf("%w: %s", err, tail(out))
		} else if strings.Contains(out, "no tests to run") {
			t.err = errors.New("there is no such test")
		}
		l.unbroken[m.where()] = t
	}
	return t
}

func (l *lab) test(ctx context.Context, m mutant, limit time.Duration) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-timeout="+limit.String(), "-run="+m.test, m.pkg)
	cmd.Dir = l.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// classify evaluates the output of go test on a broken tree.
func classify(out string, err error) outcome {
	switch {
	case err == nil:
		return survived
	case strings.Contains(out, "panic: test timed out"):
		return hung
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"), !strings.Contains(out, "FAIL"):
		return invalid
	default:
		return killed
	}
}

func complaint(o outcome, out string) error {
	switch o {
	case survived:
		return errors.New("it survived its test")
	case invalid:
		return fmt.Errorf("it does not compile: %s", tail(out))
	default:
		return nil
	}
}

// tail returns the end of a command's output.
func tail(out string) string { return out[max(0, len(out)-1000):] }
