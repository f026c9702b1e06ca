package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// mutant is one way to break the code.
type mutant struct {
	name string // what it breaks
	file string // from the module's root
	old  string // the text to replace; it occurs as often as times says
	new  string
	// times is how often old occurs in the file and is replaced; 0: once.
	times int
	pkg   string // package of the test that kills it, as an argument of go test
	test  string // the pattern of -run
	// tries is how often the test runs until it fails, if it depends on the timing of two threads;
	// 0: once.
	tries int
}

// where returns the name of the test for display.
func (m mutant) where() string { return strings.TrimPrefix(m.pkg, "./") + " " + m.test }

// apply returns the modified text.
func (m mutant) apply(text string) (string, error) {
	want := max(m.times, 1)
	if n := strings.Count(text, m.old); n != want {
		return "", fmt.Errorf("stands %d times in %s, not %d: %q", n, m.file, want, m.old)
	}
	return strings.ReplaceAll(text, m.old, m.new), nil
}

// applyAll checks that each mutant can be applied, before any is tested.
func applyAll(ms []mutant, read func(file string) ([]byte, error)) error {
	var errs []error
	for _, m := range ms {
		text, err := read(m.file)
		if err == nil {
			_, err = m.apply(string(text))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	return errors.Join(errs...)
}

// all returns the mutants, each of which guards a contract.
func all() []mutant { return slices.Concat(ucpList, transportsList, verbsList) }
