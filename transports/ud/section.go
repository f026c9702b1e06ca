package ud

import (
	"time"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// watchdog is how long after a worker's look at the clock the async goroutine looks
// whether it still polls.
const watchdog = time.Millisecond

// sectionPackets bounds what a section takes in.
const sectionPackets = 128

func (f *iface) openAsync(unattended func() time.Duration) (err error) {
	f.sweepEvery = max(min(f.conf.KeepAlive/4, time.Second), time.Millisecond)
	if f.owner, err = nic.NewOwner(); err != nil {
		return err
	}
	f.owner.EnterWait()
	defer f.owner.Leave()
	if f.watched = unattended != nil; f.watched {
		f.owner.SetOutside(unattended)
	}
	f.arm()
	return f.owner.Watch(f.channel.FD(), f.signalled)
}

// signalled runs in the async goroutine, inside: something has come while the
// program does not look.
func (f *iface) signalled() {
	f.disarm()
	f.section(ucs.Now())
}

// alarmed runs inside, when the alarm is due: in the worker's Progress, which does
// everything itself, or in the async goroutine.
func (f *iface) alarmed(now ucs.Time) {
	f.alarmAt = 0
	if f.depth == 0 {
		f.section(now)
	}
}

// wakeAt has alarmed run at a time, or before it.
func (f *iface) wakeAt(when ucs.Time) {
	if when == never || f.alarmAt != 0 && f.alarmAt <= when.Add(watchdog/2) {
		return
	}
	if f.alarmAt != 0 {
		f.owner.Cancel(f.alarm)
	}
	f.alarmAt = when
	f.alarm = f.owner.At(when, f.onAlarm)
}

// section does what the worker owes its peers, and calls nobody. The operations that
// wait for room are resumed after it: see uct.IfaceConfig.Unattended.
func (f *iface) section(now ucs.Time) {
	if f.closed {
		return
	}
	f.stats.Inc(statSections)
	f.now, f.searches = now, 0
	f.arm()
	more := true
	for took := 0; more && took < sectionPackets && f.takes(); {
		n := f.recvCQ.Poll(f.wcs[:pollBatch/2])
		if more = n > 0; more {
			f.arrived(f.wcs[:n])
			took += n
		}
	}
	f.shareOut()
	f.payAll()
	f.reap()
	if now >= f.due {
		f.timers()
	}
	if now.Sub(f.swept) > f.sweepEvery {
		f.sweep(now)
	}
	f.repost()
	f.flushPosts()
	f.collecting = false
	if f.asleep && f.news() {
		f.wake.Raise()
	}
	if f.watched && f.unattended() {
		f.owner.CallOutside()
	}
	switch {
	case more && f.takes():
		f.wakeAt(now.Add(watchdog / 10))
	default:
		f.wakeAt(f.due)
		if f.mux.Receiving() || len(f.eps) > len(f.freeEps) {
			f.wakeAt(now.Add(f.sweepEvery))
		}
	}
}

// takes reports whether a section may take in more. What it takes lies there until
// the next Progress; while nothing does, all is taken: it may be what the worker
// sleeps for.
func (f *iface) takes() bool { return f.handed == len(f.queue) || f.spare() > pollBatch/2 }

// news reports whether the next Progress would have something to tell.
func (f *iface) news() bool {
	if f.handed < len(f.queue) || len(f.events) > 0 || len(f.failing) > 0 {
		return true
	}
	for _, e := range f.waiting {
		if e.fits() {
			return true
		}
	}
	return false
}

// arm asks for an event of the next packet.
func (f *iface) arm() {
	if !f.armed {
		f.armed = true
		f.recvCQ.Arm(false)
	}
}

// disarm takes the event that was asked for, so that it wakes nobody else.
func (f *iface) disarm() {
	f.armed = false
	for {
		if _, ok := f.channel.TryEvent(); !ok {
			return
		}
	}
}

// EventFD: see uct.Iface.
func (f *iface) EventFD() int { return f.wake.FD() }

// Arm asks to be woken by whatever comes.
func (f *iface) Arm(uct.EventKind) uct.Status {
	if f.closed {
		return ucs.Closed
	}
	if !f.enter() {
		return ucs.Busy
	}
	defer f.leave()
	f.awake()
	for !f.news() {
		f.disarm()
		f.arm()
		n := f.recvCQ.Poll(f.wcs[:])
		if n <= 0 {
			break
		}
		f.arrived(f.wcs[:n]) // its event is there, and wakes for nothing
		f.repost()
	}
	f.payAll()
	f.reap()
	f.flushPosts()
	f.collecting = false
	if f.news() {
		f.more = true
		return ucs.Busy
	}
	f.asleep, f.more = true, true
	f.d.Rest()
	return ucs.OK
}

// awake ends a sleep.
func (f *iface) awake() {
	f.asleep = false
	f.wake.Lower()
}
