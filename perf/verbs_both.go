package perf

import "errors"

// verbsBoth is a ping-pong in which one goroutine drives both sides, each with its own device. It
// measures the CPU cost of a message on both sides.
type verbsBoth[E verbsPeer[E]] struct {
	a, b E // a begins
}

// verbsPeer is a side that has access to the other one.
type verbsPeer[E any] interface {
	verbsEnd
	// hop sends a message and waits until it has arrived at o. Sending a long message also takes
	// the sender's progress, so hop drives both sides.
	hop(o E, lead int) error
	prepare(lead int)
	verify() error
	validates() bool
	layout() Layout
}

func newVerbsBoth(a, b *verbsSide) kernel {
	if a.test.Op == OpPut {
		return &verbsBoth[*verbsWrite]{newVerbsWrite(a), newVerbsWrite(b)}
	}
	return &verbsBoth[*verbsSend]{newVerbsSend(a), newVerbsSend(b)}
}

func (k *verbsBoth[E]) active(n int64, st *stamps) error {
	if k.a.validates() {
		return k.checked(n, st)
	}
	return k.loop(n, st)
}

func (k *verbsBoth[E]) passive(int64) error { return nil }
func (k *verbsBoth[E]) layout() Layout      { return k.a.layout() }
func (k *verbsBoth[E]) transports() string  { return k.a.transports() }

//go:noinline
func (k *verbsBoth[E]) loop(n int64, st *stamps) error {
	a, b := k.a, k.b
	for range n {
		if err := a.hop(b, 1); err != nil {
			return err
		}
		if err := b.hop(a, 0); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}

func (k *verbsBoth[E]) checked(n int64, st *stamps) error {
	for range n {
		k.a.prepare(1)
		if err := errors.Join(k.a.hop(k.b, 1), k.b.verify()); err != nil {
			return err
		}
		k.b.prepare(0)
		if err := errors.Join(k.b.hop(k.a, 0), k.a.verify()); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}

func (k *verbsBoth[E]) progress() {
	k.a.progress()
	k.b.progress()
}

func (k *verbsBoth[E]) close() error { return errors.Join(k.a.close(), k.b.close()) }

func (k *verbsSend) hop(o *verbsSend, _ int) error {
	if err := k.post(1, false); err != nil {
		return err
	}
	o.seq++
	for o.got < o.seq {
		if err := o.idle(); err != nil {
			return err
		}
		if o.got < o.seq {
			if err := k.idle(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *verbsWrite) hop(o *verbsWrite, lead int) error {
	*k.end = k.seq + byte(lead)
	if err := k.post(1, false); err != nil {
		return err
	}
	o.seq++
	for !o.last.is(o.seq) {
		if err := o.idle(); err != nil {
			return err
		}
		if !o.last.is(o.seq) {
			if err := k.idle(); err != nil {
				return err
			}
		}
	}
	return nil
}
