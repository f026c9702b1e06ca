package perf

import (
	"fmt"
	"runtime"

	"github.com/goucx/goucx/ucs/cpu"
)

// runSides executes a verbs test whose two threads are its two sides in this process, each with
// its own device.
func runSides(c *Config, p *Params, t Test) (*Result, error) {
	defer spread(p.threads())()
	var result *Result
	side := *p
	side.ThreadCount = 1
	err := runBoth(func(g Group) error {
		if err := pinSide(c.CPUs, g.Index()); err != nil {
			return err
		}
		own := *c
		if g.Index() != 0 {
			own.Connected = nil
		}
		r, err := runOne(&own, g, &side, t)
		if r != nil {
			result = r
		}
		return err
	})
	if result != nil {
		result.Params.ThreadCount = p.threads()
	}
	return result, err
}

// pinSide binds a side to its own processor if there are enough. Its thread ends with its
// goroutine.
func pinSide(cpus []int, index int) error {
	if len(cpus) < 2 {
		return nil
	}
	runtime.LockOSThread()
	if err := cpu.SetAffinity(cpus[index : index+1]); err != nil {
		return fmt.Errorf("thread %d: %w", index, err)
	}
	return nil
}

// openSides sets up both sides for one goroutine to drive.
func openSides(c *Config, l *link, p *Params, t Test) (a, b *verbsSide, err error) {
	var sides [2]*verbsSide
	err = runBoth(func(g Group) error {
		s := newVerbsSide(c, newLink(c, g), p, t)
		sides[g.Index()] = s
		return s.build(c)
	})
	for _, s := range sides {
		s.link = l
		if err != nil {
			_ = s.close() // the first error is reported
		}
	}
	return sides[0], sides[1], err
}
