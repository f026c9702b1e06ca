//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucp"
)

// window is how many operations of a link are in progress at most.
const window = 16

type linkState uint8

const (
	linkOpen   linkState = iota
	linkFailed           // an operation failed, since the peer has ended
	linkParted           // all its requests have ended, its endpoints are closed
)

func (s linkState) String() string { return [...]string{"open", "failed", "parted"}[s] }

// Endpoints of a link.
const (
	mainEP = iota
	twinEP // reads back what was flushed on the other one
	numEPs
	noEP = -1 // an operation that a flush of the main endpoint does not cover
)

// link is the exchange with one other member, as one side has it.
type link struct {
	m       *member
	id      uint32
	state   linkState
	reason  error
	eps     [numEPs]ucp.Endpoint
	calls   [numEPs]int // of OnFailure
	remotes []*remote
	twin    *ucp.RemoteKey
	shared  ucp.Atomic[uint64]

	sent    sent
	pending []*op
	replies map[uint32]*reply
	cancels []*op // sends to be cancelled
	tied    []*receive
	resume  time.Time // nothing is begun before
	parted  time.Duration
	seen    uint64 // value of the shared word
	flushed bool   // the last flush was posted
	history [64]begun
	begun   int // in all
}

// begun is an operation of a link for its history.
type begun struct {
	name string
	n    uint32 // number of a message
	size int
}

func (l *link) record(name string, n uint32, size int) {
	l.history[l.begun%len(l.history)] = begun{name, n, size}
	l.begun++
}

// op is an operation in progress.
type op struct {
	name   string
	ep     int
	req    interface{ Done() bool }
	end    func() error // called once, when req is done: checks and releases
	posted time.Duration
}

func (m *member) describe(o *op) string {
	s := fmt.Sprintf("%s for %.1f s", o.name, m.clock.since(o.posted).Seconds())
	if r, ok := o.req.(fmt.Stringer); ok {
		s += ": " + r.String()
	}
	return s
}

// wrong is an error that breaks a promise, whatever happened to the peer.
type wrong struct{ text string }

func (w *wrong) Error() string { return w.text }

func wrongf(format string, a ...any) error { return &wrong{fmt.Sprintf(format, a...)} }

// ended reports whether err is one of those that follow from a peer that has ended, is
// closing, or has closed its memory. The controller knows whether the peer has.
func ended(err error) bool {
	return errors.Is(err, ucp.ErrPeerFailed) || errors.Is(err, ucp.ErrUnreachable) ||
		errors.Is(err, ucp.ErrRemoteAccess) || errors.Is(err, ucp.ErrRejected)
}

// reply is the wait for an answer to an active message.
type reply struct {
	l   *link
	got bool
}

func (r *reply) Done() bool { return r.got || r.l.state != linkOpen }

// notified is a request whose end comes by callback.
type notified struct {
	ucp.Request
	err  error
	done atomic.Bool
}

func (n *notified) Done() bool { return n.done.Load() }

// newLink makes the endpoints to a member that may have ended already.
func (m *member) newLink(with line) {
	l := &link{m: m, id: with.ID, replies: make(map[uint32]*reply)}
	m.links = append(m.links, l)
	for i := range l.eps {
		e, err := m.w.NewEndpoint(with.Address, ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) {
			m.push(event{kind: eventFailure, id: l.id, n: uint32(i), err: err})
		}})
		if err != nil {
			m.anomaly("NewEndpoint to member %d: %v", l.id, err)
		}
		l.eps[i] = e
	}
	l.setUp(with)
}

func (l *link) post(name string, ep int, req interface{ Done() bool }, end func() error) *op {
	o := &op{name, ep, req, end, l.m.clock.now()}
	l.pending = append(l.pending, o)
	l.m.ops++
	return o
}

// fail notes that the peer has ended.
func (l *link) fail(err error) {
	if l.state == linkOpen {
		l.state, l.reason = linkFailed, err
		l.m.say(line{Kind: "failed", ID: l.id, Text: err.Error()})
	}
}

// result judges the error of an operation.
func (l *link) result(name string, err error) {
	var w *wrong
	switch {
	case err == nil:
	case errors.As(err, &w) || !ended(err):
		l.m.anomaly("member %d, link to %d (%v): %s: %v", l.m.ID, l.id, l.state, name, err)
	default:
		l.fail(fmt.Errorf("%s: %w", name, err))
	}
}

// step handles ended operations and begins more; it reports whether it did anything.
func (l *link) step() bool {
	did := l.reap()
	switch l.state {
	case linkOpen:
		if l.m.resting {
			if !l.flushed && len(l.pending) == 0 {
				l.flushed, did = true, true
				for i := range l.eps {
					l.flush(i)
				}
			}
			break
		}
		for i := 0; i < 4 && len(l.pending) < window && time.Now().After(l.resume) && l.state == linkOpen; i++ {
			l.begin()
			did = true
		}
	case linkFailed:
		if len(l.pending) == 0 && len(l.tied) == 0 {
			l.part()
			did = true
		}
	case linkParted:
	}
	return did
}

// reap ends the operations whose requests are done.
func (l *link) reap() (did bool) {
	for i, o := range l.cancels {
		if l.m.rnd.IntN(3) == 0 {
			o.req.(ucp.Request).Cancel()
			l.cancels = append(l.cancels[:i], l.cancels[i+1:]...)
			break
		}
	}
	open := l.pending
	l.pending = nil // an end may post
	var kept []*op
	for _, o := range open {
		if !o.req.Done() {
			kept = append(kept, o)
			continue
		}
		did = true
		err := o.end()
		l.result(o.name, err)
		if d := l.m.clock.since(o.posted); err == nil && l.state == linkOpen && d.Seconds() > l.m.slowest {
			l.m.slowest, l.m.slow = d.Seconds(), fmt.Sprintf("%s to member %d", o.name, l.id)
		}
	}
	l.pending = append(kept, l.pending...)
	return did
}

// operations that a link begins, with their weights; -chaos.without leaves some out.
var operations = []struct {
	name   string
	weight int
	begin  func(l *link)
}{
	{"any", 200, func(l *link) { l.send(classAny) }},
	{"tied", 120, func(l *link) { l.send(classTied) }},
	{"taken", 80, func(l *link) { l.send(classTaken) }},
	{"cancel", 40, (*link).sendAndCancel},
	{"am", 180, (*link).sendAM},
	{"access", 100, (*link).access},
	{"tell", 40, (*link).putAndTell},
	{"atomic", 140, (*link).atomic},
	{"flush", 30, func(l *link) { l.flush(mainEP) }},
	{"readback", 20, (*link).putAndReadBack},
	{"fence", 30, (*link).fence},
	{"flushall", 10, func(l *link) { l.m.flushAll() }},
	{"fenceall", 6, func(l *link) { l.m.fenceAll() }},
	{"idle", 4, (*link).idle},
	{"deaf", 1, (*link).deaf},
}

// begin begins one operation.
func (l *link) begin() {
	total := 0
	for _, o := range operations {
		if !slices.Contains(l.m.Without, o.name) {
			total += o.weight
		}
	}
	pick := l.m.rnd.IntN(total)
	for _, o := range operations {
		if slices.Contains(l.m.Without, o.name) {
			continue
		}
		if pick -= o.weight; pick < 0 {
			o.begin(l)
			return
		}
	}
}

// idle pauses the link, at times long enough that its connection is suspended.
func (l *link) idle() {
	l.resume = time.Now().Add(l.m.pauseFor(200 * time.Millisecond))
}

// deaf has the member receive no messages for a while, so that senders wait.
func (l *link) deaf() { l.m.hears = time.Now().Add(l.m.pauseFor(100 * time.Millisecond)) }

// pauseFor returns a pause, after which the member is woken.
func (m *member) pauseFor(most time.Duration) time.Duration {
	if m.rnd.IntN(10) == 0 {
		most *= 10
	}
	pause := time.Duration(m.rnd.Int64N(int64(most)))
	time.AfterFunc(pause, m.w.Signal)
	return pause
}

// flush flushes an endpoint: all that was posted before on it must have ended then.
func (l *link) flush(ep int) {
	var before []*op
	for _, o := range l.pending {
		if o.ep == ep {
			before = append(before, o)
		}
	}
	l.record("flush", 0, 0)
	req := l.eps[ep].Flush()
	l.post("flush", noEP, req, func() error {
		err := req.Err()
		if err == nil {
			return l.m.allDone(before)
		}
		return err
	})
}

func (m *member) allDone(before []*op) error {
	for _, o := range before {
		if !o.req.Done() {
			return wrongf("a flush ended before what was posted before it: %s", m.describe(o))
		}
	}
	return nil
}

// part closes the endpoints of a peer that has ended. OnFailure must have been called
// once for each that failed, and that at the latest when Close returns.
func (l *link) part() {
	m := l.m
	// A process that is ending can be connected to for a moment.
	var err error
	for err == nil {
		err = l.eps[mainEP].TagSend(nil, 0).Wait(context.Background())
	}
	if !ended(err) {
		m.anomaly("a send to member %d after its failure (%v): %v", l.id, l.reason, err)
	}
	var failed [numEPs]bool
	for i, e := range l.eps {
		failed[i] = e.Info().Err != nil
		began := m.clock.now()
		if err := e.Close(); err != nil && !ended(err) {
			m.anomaly("Close of endpoint %d to member %d after its failure: %v", i, l.id, err)
		}
		if d := m.clock.since(began); failed[i] && d > slack {
			m.anomaly("Close of endpoint %d to member %d, which had failed, took %v", i, l.id, d)
		}
	}
	m.drainEvents()
	for i, n := range l.calls {
		if (failed[i] && n != 1 || n > 1) && !slices.Contains(m.Without, "onfailure") {
			m.anomaly("OnFailure of endpoint %d to member %d (failed: %v) was called %d times", i, l.id, failed[i], n)
		}
	}
	l.state, l.parted = linkParted, m.clock.now()
	m.say(line{Kind: "parted", ID: l.id})
}

func (l *link) String() string {
	var b strings.Builder
	info := l.eps[mainEP].Info()
	fmt.Fprintf(&b, "link to %d: %v, %v, error %v, sent %+v, expected %+v, received %+v\n",
		l.id, l.state, info.Lanes, info.Err, l.sent, l.m.expected[l.id], l.m.received(l.id))
	for _, o := range l.pending {
		fmt.Fprintf(&b, "\t%s\n", l.m.describe(o))
	}
	for _, r := range l.tied {
		fmt.Fprintf(&b, "\ttied %v\n", r.req)
	}
	b.WriteString("\tbegun:")
	for i := max(l.begun-len(l.history), 0); i < l.begun; i++ {
		h := l.history[i%len(l.history)]
		fmt.Fprintf(&b, " %s %d (%d);", h.name, h.n, h.size)
	}
	b.WriteString("\n")
	return b.String()
}
