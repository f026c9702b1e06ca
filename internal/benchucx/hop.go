package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
)

// distance is how far the two cores are from each other. Virtual machines move their processors:
// for seconds two of them share a physical core, and then again they do not.
type distance uint8

const (
	unknown distance = iota // not measured
	near
	far
	mixed // it changed during a run
)

// distanceNames are the names of distances in tables and files.
var distanceNames = [...]string{unknown: "unknown", near: "near", far: "far", mixed: "mixed"}

// nearLimit separates the distances, in nanoseconds per hop: a hop takes 45 to 60 where the cores
// share a cache of the first level, and 100 to 250 elsewhere.
const nearLimit = 80.0

// distanceOf returns the distance during a run from the hops before and after it, in nanoseconds.
func distanceOf(before, after float64) distance {
	switch {
	case before == 0 || after == 0:
		return unknown
	case (before < nearLimit) != (after < nearLimit):
		return mixed
	case before < nearLimit:
		return near
	default:
		return far
	}
}

const (
	hopBlocks = 21  // of which the median counts
	hopRounds = 500 // per block
)

// measureHop returns the median time of a hop between two cores in nanoseconds: one stores a number
// to its cache line, and the other replies in a line of its own. It takes a few milliseconds.
func measureHop(client, server int) (float64, error) {
	var ping, pong struct {
		_ ucs.Pad
		n atomic.Uint64
		_ ucs.Pad
	}
	const last = ^uint64(0)
	bound := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its affinity
		err := cpu.SetAffinity([]int{server})
		bound <- err
		for n := uint64(0); err == nil && n != last; {
			if m := ping.n.Load(); m != n {
				n = m
				pong.n.Store(n)
			}
		}
		bound <- nil
	}()
	if err := <-bound; err != nil {
		<-bound
		return 0, err
	}
	var hop float64
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cpu.SetAffinity([]int{client})
		if err == nil {
			hop = hops(&ping.n, &pong.n)
		}
		done <- err
	}()
	err := <-done
	ping.n.Store(last)
	<-bound
	return hop, err
}

// hops measures blocks of rounds and returns the median hop in nanoseconds.
func hops(ping, pong *atomic.Uint64) float64 {
	var blocks [hopBlocks]float64
	n := uint64(0)
	for i := range blocks {
		start := ucs.Now()
		for range hopRounds {
			n++
			ping.Store(n)
			for pong.Load() != n {
			}
		}
		blocks[i] = float64(ucs.Now().Sub(start).Nanoseconds()) / (2 * hopRounds)
	}
	return median(blocks[:])
}

// sample is a run's figure with the hops before and after it.
type sample struct {
	figure        float64
	before, after float64 // ns; 0: not measured
}

func (s sample) distance() distance { return distanceOf(s.before, s.after) }

// pair is one run of each tool in turn.
type pair struct{ ours, ucx sample }

func (p pair) ratio() float64 { return p.ours.figure / p.ucx.figure }

// distance returns the distance of both runs, or mixed if they differ.
func (p pair) distance() distance {
	if d := p.ours.distance(); d == p.ucx.distance() {
		return d
	}
	return mixed
}

// leastComparable is the number of comparable pairs from which the others are left out: below it,
// no interval covers the median with the required probability.
const leastComparable = 6

// unchanged returns the pairs in which both runs had the same distance of the cores.
func unchanged(pairs []pair) []pair {
	return slices.DeleteFunc(slices.Clone(pairs), func(p pair) bool { return p.distance() == mixed })
}

// comparable returns the pairs that a row is judged by: the unchanged ones, or all if those are
// too few.
func comparable(pairs []pair) []pair {
	if same := unchanged(pairs); len(same) >= leastComparable {
		return same
	}
	return pairs
}

// distances returns the number of pairs for each distance, for display.
func distances(pairs []pair) string {
	var counts [len(distanceNames)]int
	for _, p := range pairs {
		counts[p.distance()]++
	}
	var s []string
	for d, n := range counts {
		if n > 0 {
			s = append(s, fmt.Sprint(n, " ", distanceNames[d]))
		}
	}
	return strings.Join(s, ", ")
}
