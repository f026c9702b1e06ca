package perf

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// Config holds what the calling program provides.
type Config struct {
	// Providers are the transports; required.
	Providers []uct.Component
	// Verbs opens the devices of verbs tests; nil: none.
	Verbs verbs.Provider
	// Adapter returns a provider of the same devices that account for an adapter's doorbell
	// registers, for verbs_rate; without blueFlame no work request is written with its doorbell. nil:
	// Verbs.
	Adapter func(blueFlame bool) verbs.Provider
	// Settings; nil: defaults, configuration files and the UCX_* environment, which ucp reads if a
	// test needs them.
	Settings *config.Set
	// Log is for the control path; nil: no log.
	Log *zap.Logger
	// Interval between rows; 0: a second, as in UCX's tool.
	Interval time.Duration
	// CPUs are the processors to which this process is bound; each of the two threads of a verbs
	// test gets one. nil: no binding.
	CPUs []int
	// Interrupt ends the run when it is closed, within a second: Run returns ErrInterrupted, on the
	// measuring side with the Result of what ran, if anything did. nil: no interruption.
	Interrupt <-chan struct{}
	// Connected receives the transports and devices that the test uses ("shm/memory"), when its
	// endpoints are connected and before the warm-up, on both sides; nil: none.
	Connected func(transports string)
	// Rows receives each row of the measuring side, including the last; nil: none. It is called on
	// the measuring goroutine.
	Rows func(Report)
}

// kernel is a test that is set up.
type kernel interface {
	// active sends n messages on the measuring side. Each loop takes its own stamps.
	active(n int64, st *stamps) error
	// passive executes the other side's part of n messages, if there is one.
	passive(n int64) error
	// progress makes a little communication progress.
	progress()
	// transports returns transport/device of what carries the test's messages, several separated by
	// blanks.
	transports() string
	// close releases all resources.
	close() error
}

// sender is a kernel whose messages may be in flight when its loops have ended.
type sender interface {
	// flush waits until the other side has received them.
	flush() error
	// abandon cancels them, so that close need not wait for the other side.
	abandon()
}

// settle waits for the messages of k in flight.
func settle(k kernel) error {
	if s, ok := k.(sender); ok {
		return s.flush()
	}
	return nil
}

// Run executes one test. Both sides call it with the same p. It returns a Result on the side with
// index 0, which measures, and nil on the other. With an error it returns a Result after an
// interruption only: ErrInterrupted, or one that the other side reports (an error of g whose method
// Interrupted() returns true). The owner of g reports a local error to the other side.
func Run(c Config, g Group, p Params) (r *Result, err error) {
	defer func() {
		select {
		case <-c.Interrupt:
			if err != nil && !errors.Is(err, ErrInterrupted) { // the other side has ended because of it
				err = fmt.Errorf("run %s: %w", p.Test, ErrInterrupted)
			}
		default:
		}
	}()
	if err := p.Check(); err != nil {
		return nil, err
	}
	t, err := Lookup(p.Test)
	if err != nil {
		return nil, err
	}
	switch {
	case t.Op == OpSharedPut && g.Size() > 1:
		return nil, fmt.Errorf("%s: its threads are both sides: they are in one process", t.Name)
	case t.API != Verbs || p.threads() == 1 || t.Op == OpSharedPut:
		return runOne(&c, g, &p, t)
	case g.Size() == 1:
		return runSides(&c, &p, t)
	default:
		return nil, fmt.Errorf("%s: two threads of a test of verbs are its two sides: they are in one process", t.Name)
	}
}

// runOne executes one side of a test, or both within one process.
func runOne(c *Config, g Group, p *Params, t Test) (*Result, error) {
	m, err := assemble(c, g, p, t)
	if err != nil {
		return nil, fmt.Errorf("set up %s: %w", p.Test, err)
	}
	r, err := m.run()
	if err != nil {
		m.abandon()
	}
	if cerr := m.close(); err == nil && cerr != nil {
		return nil, fmt.Errorf("clean up %s: %w", p.Test, cerr)
	}
	if err != nil {
		return r, fmt.Errorf("run %s: %w", p.Test, err)
	}
	return r, nil
}

// open creates the kernel of a test with one thread.
func open(c *Config, l *link, p *Params, t Test) (kernel, error) {
	switch {
	case t.API == UCT:
		return openUCT(c, l, p, t)
	case t.Op == OpSharedPut:
		r, err := openRate(c, []*link{l}, p, t)
		if err != nil {
			return nil, err
		}
		return r.threads[0], nil
	case t.API == Verbs:
		return openVerbs(c, l, p, t)
	default:
		return openUCP(c, l, p, t)
	}
}

// run warms up, measures, and waits for the other side to finish.
func (m *team) run() (*Result, error) {
	g, p := m.g, m.p
	type stage struct {
		n       int64
		measure bool
		after   func() // progress while the other side completes the stage; nil: none
	}
	after := m.progress
	var stages []stage
	if q := p.Effective(m.test); q.Unprogressed || m.test.API == UCP && q.Sharing != "" {
		// Connecting takes the progress of both sides, so one operation connects them first. A Thread
		// connects at its first operation.
		stages = append(stages, stage{1, false, m.progress})
		if q.Unprogressed && g.Index() == 1 {
			after = nil
		}
	}
	connected := len(stages)
	for i, ph := range append(stages, stage{p.warmup(), false, after}, stage{p.iterations(), true, after}) {
		if i == connected && m.connected != nil {
			m.connected(m.kernels[0].transports())
		}
		if err := g.Barrier(m.progress); err != nil {
			return nil, err
		}
		if err := m.phase(ph.n, ph.measure); err != nil {
			if ph.measure && g.Index() == 0 {
				return m.interrupted(err)
			}
			return nil, err
		}
		if err := g.Barrier(ph.after); err != nil {
			return nil, err
		}
	}
	if g.Index() != 0 {
		return nil, nil
	}
	return m.result(), nil
}

// phase executes one thread's part of this side's part of n messages.
func phase(k kernel, g Group, n int64, measure bool, st *stamps) (err error) {
	defer func() {
		if e := recover(); e == errReported {
			err = ErrInterrupted
		} else if e != nil {
			panic(e)
		}
	}()
	if n == 0 { // no warm-up: a ping-pong must not begin
		return nil
	}
	if g.Index() != 0 {
		if err := k.passive(n); err != nil {
			return err
		}
		return settle(k)
	}
	st.begin(measure)
	if err := k.active(n, st); err != nil {
		return err
	}
	if measure {
		st.end(n)
	}
	return settle(k)
}
