package ucttest

import (
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

var eventCases = []testCase{
	{"descriptor", eventDescriptor},
	{"idle", eventIdle},
	{"busy", eventBusy},
	{"message", eventMessage},
	{"first-contact", eventFirstContact},
	{"resources", eventResources},
}

// readable waits for the iface's event descriptor.
func (n *node) readable(wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(n.iface.EventFD()), Events: unix.POLLIN}}
	end := ucs.Now().Add(wait)
	for {
		left := max(end.Sub(ucs.Now()), 0)
		count, err := unix.Poll(fds, int(left.Milliseconds()))
		if err != unix.EINTR {
			return err == nil && count == 1
		}
	}
}

// arm progresses until Arm succeeds.
func (n *node) arm(k uct.EventKind, others ...*node) {
	n.env.Helper()
	n.env.until("Arm to take", func() bool {
		st := n.iface.Arm(k)
		if st != ok && st != ucs.Busy && st != ucs.InProgress {
			n.env.Fatalf("Arm returned %v", st)
		}
		return st == ok
	}, append(others, n)...)
}

// armQuiet progresses until Arm succeeds and the descriptor is quiet. A message that arrived just
// before, or is retransmitted because the machine is slow, may make the descriptor readable once.
func (n *node) armQuiet(k uct.EventKind, others ...*node) {
	n.env.Helper()
	n.env.until("an armed descriptor to be quiet", func() bool {
		n.arm(k, others...)
		return !n.readable(0)
	}, append(others, n)...)
}

func (e *env) needsEvents(n *node, k uct.EventKind) {
	e.Helper()
	if n.attr.Events&k != k {
		e.notApplicable("no such events")
	}
}

// eventDescriptor: an iface has a descriptor if and only if it supports events.
func eventDescriptor(e *env) {
	n := e.node()
	if n.attr.Events == 0 {
		require.Equal(e, -1, n.iface.EventFD())
		require.Equal(e, ucs.Unsupported, n.iface.Arm(uct.EventRecv))
		return
	}
	require.GreaterOrEqual(e, n.iface.EventFD(), 0)
	require.Equal(e, n.iface.EventFD(), n.iface.EventFD())
}

// eventIdle: without traffic an armed descriptor stays quiet.
func eventIdle(e *env) {
	e.needsPrompt()
	a, b := e.pair()
	e.needsEvents(a, uct.EventRecv)
	e.connect(a, b)
	e.settle(a, b)
	for range 3 {
		a.armQuiet(uct.EventRecv, b)
	}
	b.armQuiet(uct.EventRecv, a)
}

// eventBusy: while a message waits, Arm returns Busy or the descriptor becomes readable.
func eventBusy(e *env) {
	e.needsPrompt()
	a, b := e.pair()
	e.needsEvents(b, uct.EventRecv)
	e.needs(a, uct.OpAMShort, "AM short")
	l := e.connect(a, b)
	l.firstMessage()
	require.Equal(e, ok, l.AMUint64(1, 1, 1))
	if st := b.iface.Arm(uct.EventRecv); st != ucs.Busy { // a device's goroutine may be receiving it just now
		require.Equal(e, ok, st)
		require.True(e, b.readable(patience), "a message waits")
	}
	e.until("the message", func() bool { return len(b.inbox) == 1 }, b)
	b.arm(uct.EventRecv, a)
}

// firstMessage establishes the connection and settles it.
func (l *link) firstMessage() {
	l.env.Helper()
	require.Equal(l.env, ok, l.post(func() uct.Status { return l.AMUint64(0, 0, 0) }))
	l.env.until("the first message", func() bool { return len(l.to.inbox) == 1 }, l.from, l.to)
	l.to.inbox = nil
	l.env.settle(l.from, l.to)
}

// eventMessage: a message makes an armed descriptor readable, repeatedly, and the descriptor is
// quiet again once the message is handled.
func eventMessage(e *env) {
	e.needsPrompt()
	a, b := e.pair()
	e.needsEvents(b, uct.EventRecv)
	e.needs(a, uct.OpAMShort, "AM short")
	l := e.connect(a, b)
	l.firstMessage()
	for _, f := range a.forms() {
		p := pattern(max(8, a.attr.AM.MinZcopy), 1)
		if !f.fits(a.attr, len(p)) {
			continue
		}
		for range 20 {
			st := noResource
			for st == noResource { // the connection may be suspended
				l.up()
				b.armQuiet(uct.EventRecv, a)
				st = f.send(l, 1, 1, p)
			}
			require.Contains(e, []uct.Status{ok, inProgress}, st, f.name)
			require.True(e, b.readable(patience), "AM %s does not wake", f.name)
			e.until("the message", func() bool { return len(b.inbox) == 1 }, b)
			b.inbox = nil
		}
	}
	e.settle(a, b)
}

// eventFirstContact: the first message of a new peer wakes an iface that is not polled.
func eventFirstContact(e *env) {
	a, b := e.pair()
	e.needsEvents(b, uct.EventRecv)
	e.needs(a, uct.OpAMShort, "AM short")
	b.arm(uct.EventRecv)
	l := e.connect(a, b)
	st := l.AMUint64(1, 1, 1)
	require.True(e, b.readable(patience), "first contact does not wake")
	if st == noResource { // the connection waits for the peer's reply
		st = l.post(func() uct.Status { return l.AMUint64(1, 1, 1) })
	}
	require.Equal(e, ok, st)
	e.until("the message", func() bool { return len(b.inbox) == 1 }, a, b)
}

// eventResources: send resources that become available wake the sender.
func eventResources(e *env) {
	e.needsPrompt()
	a, b := e.two()
	e.needsEvents(a, uct.EventSend)
	e.needs(a, uct.OpAMShort|uct.OpPending, "AM short with pending")
	f := e.fillLink(e.connect(a, b))
	a.onPending = f.offer(1)
	for range 50 { // they may become available without the receiver, and before Arm, which then returns Busy
		f.add(1)
		if a.iface.Arm(uct.EventSend) == ok {
			e.until("all messages", func() bool { return f.got.next == f.sent }, b)
			require.True(e, a.readable(patience), "resources that come back do not wake")
		}
		f.drain()
		for f.send() == ok {
		}
	}
}
