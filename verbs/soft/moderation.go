package soft

import (
	"fmt"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// moderation delays the events of a completion queue. It counts completions that would have
// raised the event of the present Arm. The last of count raises it, or a timer that the first of
// them has started.
//
// All is guarded by cq.tail, except timed.
type moderation struct {
	count    int // 0: any number
	period   time.Duration
	pending  int      // completions since the event
	deadline ucs.Time // of the event; 0: no timer runs
	timed    bool     // the queue is in engine.moderated; guarded by engine.lock
}

// Limits of Moderate, those of the attributes of libibverbs, which have 16 bits.
const (
	maxModCount  = 1<<16 - 1
	maxModPeriod = (1<<16 - 1) * time.Microsecond
)

var _ verbs.Moderator = (*cq)(nil)

// Moderate sets the moderation. Without both, count up to 1 and no period, each event is raised
// at once. Completions that wait for their event raise it now.
func (c *cq) Moderate(count int, period time.Duration) error {
	if count < 0 || count > maxModCount || period < 0 || period > maxModPeriod {
		return fmt.Errorf("moderate completion queue: %d completions and %v, want up to %d and %v: %w",
			count, period, maxModCount, maxModPeriod, ucs.ErrInvalid)
	}
	if c.ch == nil {
		return fmt.Errorf("moderate completion queue: it has no channel: %w", ucs.ErrInvalid)
	}
	t := c.tail.lock()
	if m := c.moderation; m != nil && m.pending > 0 {
		c.raiseDelayed()
	}
	switch m := c.moderation; {
	case m != nil:
		m.count, m.period = count, period
	case count > 1 || period > 0:
		c.moderation = &moderation{count: count, period: period}
	}
	c.tail.publish(t)
	return nil
}

// delay counts a completion that would raise the event. It returns whether the event is raised
// now, or else when the timer must expire that is to be started; 0: none. The caller holds the tail.
func (m *moderation) delay(d *device) (raise bool, start ucs.Time) {
	m.pending++
	if m.count <= 1 && m.period == 0 || m.count > 0 && m.pending >= m.count {
		m.pending, m.deadline = 0, 0
		return true, 0
	}
	if m.period == 0 || m.deadline != 0 {
		return false, 0
	}
	m.deadline = d.clock().Add(m.period)
	return false, m.deadline
}

// raiseDelayed raises the event of the completions that wait for it. The caller holds the tail.
func (c *cq) raiseDelayed() {
	m := c.moderation
	m.pending, m.deadline = 0, 0
	if c.state.Load() != cqClosed && c.armed.Swap(armedNot) != armedNot {
		c.ch.post(c)
	}
}

// expire raises the event if its time has come. It returns when to call it again; never: no
// timer runs.
func (c *cq) expire(now ucs.Time) ucs.Time {
	t := c.tail.lock()
	defer c.tail.publish(t)
	m := c.moderation
	switch {
	case m.deadline == 0 || c.state.Load() == cqClosed:
		return never
	case now < m.deadline:
		return m.deadline
	}
	c.raiseDelayed()
	return never
}

// setEventTimer makes the engine call c.expire by time when.
func (e *engine) setEventTimer(c *cq, when ucs.Time) {
	e.lock.lock()
	if !c.moderation.timed {
		c.moderation.timed = true
		e.moderated = append(e.moderated, c)
	}
	e.numTimed.Store(int32(len(e.timed) + len(e.moderated)))
	e.lock.unlock()
	e.lowerNextTimer(when)
	e.wake()
}

// expireEvents raises the delayed events whose time has come.
func (e *engine) expireEvents(now ucs.Time) {
	e.lock.lock()
	cs := e.moderated
	e.moderated = nil
	for _, c := range cs {
		c.moderation.timed = false
	}
	e.lock.unlock()
	for _, c := range cs {
		if next := c.expire(now); next != never {
			e.setEventTimer(c, next)
		}
	}
}

// stopModeration ends the timer of a closed queue. No event is raised after it.
func (e *engine) stopModeration(c *cq) {
	c.tail.publish(c.tail.lock()) // a goroutine in expire has left, or sees that the queue is closed
	e.lock.lock()
	e.moderated = slices.DeleteFunc(e.moderated, func(o *cq) bool { return o == c })
	e.lock.unlock()
}
