package perf

import "errors"

// errHolds ends a Run whose condition holds.
var errHolds = errors.New("the condition holds")

// until is the context of a Worker.Run that ends when cond holds: unlike
// Worker.WaitUntil, whose condition may depend on memory that a peer writes, Run
// sleeps until something comes. It asks its context in every 64th pass.
type until struct {
	*link
	cond func() bool
}

// Err is errHolds where the condition holds, else the link's.
func (u *until) Err() error {
	if u.cond() {
		return errHolds
	}
	return u.link.Err()
}

// awaitUntil progresses until u's condition holds, and sleeps where the test sleeps.
// The condition depends on what progress does.
func (s *ucpSide) awaitUntil(u *until) error {
	if s.p.Sleep {
		for range 64 { // as many passes that Run would not look after
			if u.cond() {
				return nil
			}
			s.w.Progress()
		}
		if err := s.w.Run(u); !errors.Is(err, errHolds) {
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
