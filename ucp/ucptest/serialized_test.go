package ucptest

import (
	"slices"
	"testing"

	"github.com/goucx/goucx/ucp"
)

// Workers that the program itself sees to, one goroutine at a time, go through
// the cases of messages and of threads that take turns.
func TestSerialized(t *testing.T) {
	for _, f := range factories(t)[:3] {
		t.Run(f.Column, func(t *testing.T) {
			for _, c := range slices.Concat(tagCases, flushCases, rmaCases, amCases) {
				t.Run(c.Name, func(t *testing.T) { c.Run(t, NewPair(t, f, ucp.ThreadSerialized)) })
			}
		})
	}
}
