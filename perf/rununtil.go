package perf

import "errors"

// errConditionMet ends a Run whose condition holds.
var errConditionMet = errors.New("the condition holds")

// runUntil is the context of a Worker.Run that ends when cond holds. Run blocks until an event
// arrives. (Worker.WaitUntil does not: its condition may depend on memory that a peer writes.) Run
// polls its context in every 64th pass.
type runUntil struct {
	*link
	cond func() bool
}

// Err returns errConditionMet if the condition holds, else the link's error.
func (u *runUntil) Err() error {
	if u.cond() {
		return errConditionMet
	}
	return u.link.Err()
}

// awaitUntil progresses until u's condition holds, and blocks if the test uses blocking waits. The
// condition must depend on what Progress does.
func (s *ucpSide) awaitUntil(u *runUntil) error {
	if s.p.Sleep {
		for range 64 { // as many passes as Run makes before it polls its context
			if u.cond() {
				return nil
			}
			s.w.Progress()
		}
		if err := s.w.Run(u); !errors.Is(err, errConditionMet) {
			return err
		}
		return nil
	}
	for !u.cond() {
		if err := s.idle(); err != nil {
			return err
		}
	}
	return nil
}
