package stats

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// Counter is the name and value of a counter at the time of a snapshot.
type Counter struct {
	Name  string
	Value uint64
}

// Set holds the counters of one component, indexed like their names.
//
// Concurrency: Inc and Add may be called by one goroutine at a time. Value and Snapshot may
// be called by any goroutine at any time.
type Set struct {
	names  []string
	values [maxCounters]uint64 // of an array: a constant index needs no check
}

// maxCounters is the maximum number of counters of a set.
const maxCounters = 64

// NewSet creates a set of counters with value 0. names are those of an enumeration, in its
// order. An empty or duplicate name, or more than 64 names, is a programming error and panics.
func NewSet(names []string) *Set {
	if len(names) > maxCounters {
		panic(fmt.Sprintf("stats: %d counters, at most %d", len(names), maxCounters))
	}
	for i, n := range names {
		if n == "" || slices.Contains(names[:i], n) {
			panic(fmt.Sprintf("stats: counter %d named %q, which is empty or not the first", i, n))
		}
	}
	return &Set{names: slices.Clone(names)}
}

// Inc increments counter i.
//
//hot:bench BenchmarkInc
func (s *Set) Inc(i int) { count(&s.values[i], 1) }

// Add adds n to counter i.
//
//hot:bench BenchmarkInc
func (s *Set) Add(i int, n uint64) { count(&s.values[i], n) }

// Value returns the value of counter i.
func (s *Set) Value(i int) uint64 { return atomic.LoadUint64(&s.values[i]) }

// Snapshot returns all counters, in the order of their names. Each value is exact, but the
// values may be of slightly different times.
func (s *Set) Snapshot() []Counter { return s.appendTo(nil, "") }

func (s *Set) appendTo(cs []Counter, prefix string) []Counter {
	for i, n := range s.names {
		cs = append(cs, Counter{prefix + n, s.Value(i)})
	}
	return cs
}
