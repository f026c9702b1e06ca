package ucttest

import (
	"math/bits"
	"slices"

	"github.com/goucx/goucx/uct"
)

// message is a received active message.
type message struct {
	id     uct.AMID
	header uint64
	rxConn uint32
	data   []byte // valid during onMessage; a copy in node.inbox
}

// flight is an operation that returned InProgress.
type flight struct {
	held  any // keeps the operation's buffers reachable
	event uct.Event
	ended bool
}

// node is an iface under test and the handler of its callbacks. It checks the rules that hold for
// all callbacks.
//
// Concurrency: one goroutine at a time.
type node struct {
	env    *env
	dom    uct.Domain
	iface  uct.Iface
	attr   *uct.IfaceAttr
	worker uct.UUID

	complaints int

	inside      bool // Progress is running
	counted     int  // messages and events of this Progress
	offered     bool // HandlePending was called in this Progress
	quiet       bool // received messages are only counted
	countOnly   bool // events are only counted
	received    int
	inbox       []message
	inFlightOps map[uct.Token]*flight
	failures    []uct.Failure
	tokens      uct.Token
	pinned      map[uct.Token][]uct.Mem // registrations made by pieces
	mayFail     bool                    // endpoints are expected to fail
	copying     bool                    // it exposes memory or fetches
	closed      bool

	onMessage func(message) // nil: append to inbox
	onPending func([]uct.Token) int
	onFailure func(uct.Failure)
	retained  int // number of retained messages
	onRetain  func(mem []byte, ds []uct.Desc) uint64
	waits     *waitReport // nil: waits for nothing
}

// waitReport is what a node reports from ReportWaits.
type waitReport struct {
	ep     uct.Endpoint
	rxConn uint32
	waits  uct.WaitKind
}

// ReportWaits implements uct.WaitReporter.
func (n *node) ReportWaits(least uct.WaitKind, report func(uct.Endpoint, uint32, uct.WaitKind)) {
	if r := n.waits; r != nil && r.waits >= least {
		report(r.ep, r.rxConn, r.waits)
	}
}

// progress calls the iface and checks the result.
func (n *node) progress(budget int) int {
	n.counted, n.offered = 0, false
	n.inside = true
	got := n.iface.Progress(budget)
	n.inside = false
	if got < n.counted || got > n.counted && !n.offered && !n.copying {
		n.complain("Progress(%d) returned %d after %d messages, events and failures", budget, got, n.counted)
	}
	return got
}

// HandleAM implements uct.Handler.
func (n *node) HandleAM(mem []byte, ds []uct.Desc) uint64 {
	n.check("HandleAM")
	n.counted += len(ds)
	n.received += len(ds)
	if len(ds) == 0 || len(ds) > uct.MaxBatch {
		n.complain("HandleAM with %d messages", len(ds))
	}
	if n.quiet {
		return 0
	}
	for i := range ds {
		d := &ds[i]
		if uint64(d.Off)+uint64(d.Len) > uint64(len(mem)) || d.ID >= uct.NumAMIDs {
			n.complain("descriptor %+v does not fit its %d bytes of memory", *d, len(mem))
			return 0
		}
		n.deliver(message{d.ID, d.Header, d.RxConn, mem[d.Off:][:d.Len:d.Len]})
	}
	if n.onRetain == nil {
		return 0
	}
	kept := n.onRetain(mem, ds)
	n.retained += bits.OnesCount64(kept)
	return kept
}

func (n *node) deliver(m message) {
	if n.onMessage != nil {
		n.onMessage(m)
		return
	}
	m.data = slices.Clone(m.data)
	n.inbox = append(n.inbox, m)
}

// HandleEvents implements uct.Handler.
func (n *node) HandleEvents(es []uct.Event) {
	n.check("HandleEvents")
	n.counted += len(es)
	if n.countOnly {
		return
	}
	for _, ev := range es {
		f := n.inFlightOps[ev.Token]
		if f == nil || f.ended {
			n.complain("event %+v of no operation in flight, or its second one", ev)
			continue
		}
		f.event, f.ended, f.held = ev, true, nil
		n.unpin(ev.Token)
	}
}

// HandlePending implements uct.Handler.
func (n *node) HandlePending(ts []uct.Token) int {
	n.check("HandlePending")
	n.offered = true
	if n.onPending == nil || len(ts) == 0 {
		n.complain("HandlePending with tokens %v", ts)
		return len(ts)
	}
	return n.onPending(ts)
}

// HandleFailure implements uct.Handler.
func (n *node) HandleFailure(f uct.Failure) {
	n.check("HandleFailure")
	n.counted++
	n.failures = append(n.failures, f)
	if n.onFailure != nil {
		n.onFailure(f)
	}
}

// complain fails the case; it prints the first few complaints of a node.
func (n *node) complain(format string, args ...any) {
	if n.complaints++; n.complaints <= 5 {
		n.env.Errorf(format, args...)
	}
}

// check verifies that Progress made the callback.
func (n *node) check(callback string) {
	if !n.inside {
		n.complain("%s outside of Progress", callback)
	}
}

// sent records the status of an operation with token t; held are its buffers.
func (n *node) sent(t uct.Token, st uct.Status, held ...any) uct.Status {
	if st == inProgress {
		n.inFlightOps[t] = &flight{held: held}
	} else {
		n.unpin(t)
	}
	return st
}

// pieces splits p into k pieces of about the same length for operation t. If the domain requires
// registration, it registers them until the operation completes.
func (n *node) pieces(t uct.Token, p []byte, k int) []uct.Vec {
	v := pieces(p, k)
	if n.dom.Attr().NeedMem && len(p) > 0 {
		m, err := n.dom.Register(p, 0)
		if err != nil {
			n.complain("register %d bytes: %v", len(p), err)
			return v
		}
		if n.pinned == nil {
			n.pinned = make(map[uct.Token][]uct.Mem)
		}
		n.pinned[t] = append(n.pinned[t], m)
		for i := range v {
			v[i].Mem = m
		}
	}
	return v
}

// unpin closes the registrations that pieces made for a completed operation.
func (n *node) unpin(t uct.Token) {
	if len(n.pinned) == 0 {
		return
	}
	for _, m := range n.pinned[t] {
		if err := m.Close(); err != nil {
			n.complain("close registered pieces: %v", err)
		}
	}
	delete(n.pinned, t)
}

// inFlight counts the operations whose event has not arrived.
func (n *node) inFlight() (count int) {
	for _, f := range n.inFlightOps {
		if !f.ended {
			count++
		}
	}
	return count
}

// address returns the iface's address.
func (n *node) address() uct.Address {
	return uct.Address{Device: n.iface.DeviceAddress(nil), Iface: n.iface.Address(nil)}
}

// failuresOf returns the failure reports about an endpoint.
func (n *node) failuresOf(ep uct.Endpoint) (fs []uct.Failure) {
	for _, f := range n.failures {
		if f.Endpoint == ep {
			fs = append(fs, f)
		}
	}
	return fs
}

// token returns an unused token.
func (n *node) token() uct.Token {
	n.tokens++
	return n.tokens
}

// checkClean checks at the end of a case that nothing is left over.
func (n *node) checkClean() {
	if n.env.Failed() || n.closed {
		return
	}
	if !drive(func() bool { return n.inFlight() == 0 }, n) {
		n.env.Errorf("%d operations without their event", n.inFlight())
	}
	for _, f := range n.failures {
		if f.Endpoint != nil && !n.mayFail {
			n.env.Errorf("an endpoint failed: %v", f.Err)
		}
	}
}

// close closes the iface before the end of the case.
func (n *node) close() error {
	n.closed = true
	return n.iface.Close()
}
