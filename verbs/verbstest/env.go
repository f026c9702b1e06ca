package verbstest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
)

// patience bounds every wait of the suite, in the fabric's time and in real time.
// What is waited for comes within milliseconds; the rest is for loaded machines.
const patience = 30 * time.Second

// faultPatience is the same where a case is expected to fail.
const faultPatience = time.Second

// quiet is how long nothing must come where nothing may, in the fabric's time.
const quiet = 2 * time.Millisecond

// yieldPasses is after how many idle passes the processor is offered to others.
const yieldPasses = 64

// env is the world of one case.
type env struct {
	testing.TB
	fixture  Fixture
	fabric   *Fabric
	sides    [2]*side
	cqs      []*cq
	reason   string // why the case was not applicable
	patience time.Duration
	// threadDomains has each queue pair in a thread domain of its own.
	threadDomains bool
}

// run opens the fabric that c needs and runs c.
func (e *env) run(c testCase) {
	for _, l := range lacks {
		if c.needs&l.need&^e.fixture.Can != 0 {
			e.notApplicable(l.reason)
		}
	}
	e.threadDomains = e.fixture.ThreadDomains && c.needs&Threads == 0
	e.fabric = e.fixture.Open(e, c.needs)
	for i := range e.sides {
		ctx := e.fabric.Devices[i]
		e.Cleanup(func() { assert.NoError(e, ctx.Close(), "close device %d", i) })
	}
	for i := range e.sides {
		e.sides[i] = newSide(e, i)
	}
	if e.fabric.Filter != nil {
		e.Cleanup(func() { e.fabric.Filter(nil) })
	}
	c.run(e)
}

// notApplicable ends the case; the reason is data of the provider's.
func (e *env) notApplicable(reason string) {
	e.Helper()
	e.reason = reason
	e.Skip("not applicable: " + reason)
}

// unlessSupported ends the case where err says that the provider lacks it.
func (e *env) unlessSupported(err error, what string) {
	e.Helper()
	if errors.Is(err, ucs.ErrUnsupported) {
		e.notApplicable(what + " is not there")
	}
	require.NoError(e, err, what)
}

func (e *env) now() ucs.Time {
	if e.fabric.Now != nil {
		return e.fabric.Now()
	}
	return ucs.Now()
}

// poll drives both devices once.
func (e *env) poll() (n int) {
	for _, c := range e.cqs {
		if !c.paused {
			n += c.poll()
		}
	}
	return n
}

// until drives the devices until cond holds.
func (e *env) until(what string, cond func() bool) {
	e.Helper()
	if !e.drive(cond, e.patience) {
		e.Fatalf("not within %v: %s", e.patience, what)
	}
}

// pass drives the devices for d of the fabric's time.
func (e *env) pass(d time.Duration) {
	end := e.now().Add(d)
	e.drive(func() bool { return !e.now().Before(end) }, d)
}

// away lets d of the fabric's time go by without a poll.
func (e *env) away(d time.Duration) {
	if e.fabric.Advance != nil {
		e.fabric.Advance(d)
		return
	}
	for end := ucs.Now().Add(d); ucs.Now().Before(end); {
		cpu.Yield()
	}
}

// settle lets come what is still to come.
func (e *env) settle() {
	for range 64 {
		e.poll()
	}
	e.pass(quiet)
}

func (e *env) drive(cond func() bool, limit time.Duration) bool {
	end, wall := e.now().Add(limit), ucs.Now().Add(max(limit, e.patience))
	idle := 0
	for i := 1; !cond(); i++ {
		if e.poll() > 0 {
			idle = 0
			continue
		}
		idle++
		e.rest(idle)
		if idle%16 == 0 && end.Before(e.now()) || i%256 == 0 && wall.Before(ucs.Now()) {
			return cond()
		}
	}
	return true
}

// rest follows the idle-th idle pass: a clock of the fabric's own goes on, by the
// more the longer nothing happens.
func (e *env) rest(idle int) {
	switch {
	case e.fabric.Advance != nil:
		e.fabric.Advance(time.Microsecond << min(idle/64, 10))
	case idle%yieldPasses == 0:
		cpu.Yield()
	}
}
