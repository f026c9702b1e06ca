package stats

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// Counter is one counter as it was read.
type Counter struct {
	Name  string
	Value uint64
}

// Set is the counters of one owner, by the index of their names.
//
// Concurrency: Inc and Add by one goroutine at a time; Value and Snapshot by
// any, at any time.
type Set struct {
	names  []string
	values []uint64
}

// NewSet makes a set of counters at zero. names are those of an enumerated
// type, in its order; an empty or repeated one is a mistake of the program and
// panics.
func NewSet(names []string) *Set {
	for i, n := range names {
		if n == "" || slices.Contains(names[:i], n) {
			panic(fmt.Sprintf("stats: counter %d named %q, which is empty or not the first", i, n))
		}
	}
	return &Set{names: slices.Clone(names), values: make([]uint64, len(names))}
}

// Inc counts one.
//
// hot: BenchmarkInc
func (s *Set) Inc(i int) { count(&s.values[i], 1) }

// Add counts n at once.
//
// hot: BenchmarkInc
func (s *Set) Add(i int, n uint64) { count(&s.values[i], n) }

// Value reads one counter.
func (s *Set) Value(i int) uint64 { return atomic.LoadUint64(&s.values[i]) }

// Snapshot reads all counters, in the order of their names. Each value is
// right; they need not be of the same moment.
func (s *Set) Snapshot() []Counter { return s.appendTo(nil, "") }

func (s *Set) appendTo(cs []Counter, prefix string) []Counter {
	for i, n := range s.names {
		cs = append(cs, Counter{prefix + n, s.Value(i)})
	}
	return cs
}
