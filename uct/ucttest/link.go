package ucttest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Short names of statuses.
const (
	ok         = ucs.OK
	inProgress = ucs.InProgress
	noResource = ucs.NoResource
)

// link is an endpoint between two nodes.
type link struct {
	uct.Endpoint
	env      *env
	from, to *node
	addr     uct.Address // the address of to that was dialed
}

// connect creates an endpoint, which is closed at the end of the case.
func (e *env) connect(from, to *node) *link {
	e.Helper()
	return e.dial(from, to, to.address())
}

func (e *env) dial(from, to *node, a uct.Address) *link {
	e.Helper()
	reachable, reason := from.iface.Reachable(a)
	require.True(e, reachable, "unreachable: %s", reason)
	ep, err := from.iface.NewEndpoint(a)
	require.NoError(e, err, "new endpoint")
	e.Cleanup(ep.Close)
	return &link{Endpoint: ep, env: e, from: from, to: to, addr: a}
}

// up establishes the connection if the transport does so at first use.
func (l *link) up() *link {
	l.env.Helper()
	if l.from.attr.Ops.Has(uct.OpCheck) {
		require.Equal(l.env, ok, l.complete(l.Check), "check")
	}
	return l
}

// post retries op while it returns noResource, and returns its status.
func (l *link) post(op func() uct.Status) (st uct.Status) {
	l.env.Helper()
	l.env.until("resources to come back", func() bool {
		st = op()
		return st != noResource
	}, l.from, l.to)
	return st
}

// complete posts op, waits for its completion, and returns its final status. held are its buffers.
func (l *link) complete(op func(t uct.Token) uct.Status, held ...any) uct.Status {
	l.env.Helper()
	t := l.from.token()
	return l.end(t, l.post(func() uct.Status { return l.from.sent(t, op(t), held...) }))
}

// receive waits for the one message in flight and removes it from the receiver's inbox.
func (l *link) receive() message {
	l.env.Helper()
	l.env.until("a message", func() bool { return len(l.to.inbox) > 0 }, l.from, l.to)
	require.Len(l.env, l.to.inbox, 1)
	m := l.to.inbox[0]
	l.to.inbox = nil
	return m
}

// end waits for the completion of an operation that returned st, and returns its final status.
func (l *link) end(t uct.Token, st uct.Status) uct.Status {
	l.env.Helper()
	return l.endValue(t, st).Status
}

// endValue is end with the fetched value, which is valid if st is InProgress.
func (l *link) endValue(t uct.Token, st uct.Status) uct.Event {
	l.env.Helper()
	if st != inProgress {
		return uct.Event{Token: t, Status: st}
	}
	f := l.from.inFlightOps[t]
	require.NotNil(l.env, f, "operation %d was not noted", t)
	l.env.until("the event of an operation", func() bool { return f.ended }, l.from, l.to)
	delete(l.from.inFlightOps, t)
	return f.event
}

// form is one way to send an active message.
type form struct {
	name string
	op   uct.Ops
	// limit returns the range of lengths.
	limit func(*uct.IfaceAttr) (minimum, maximum int)
	send  func(l *link, id uct.AMID, header uint64, p []byte) uct.Status
}

var amForms = []form{
	{"short", uct.OpAMShort, func(a *uct.IfaceAttr) (int, int) { return 0, a.AM.Short }, sendShort},
	{"uint64", uct.OpAMShort, func(a *uct.IfaceAttr) (int, int) { return 8, min(8, a.AM.Short) }, sendUint64},
	{"bcopy", uct.OpAMBcopy, func(a *uct.IfaceAttr) (int, int) { return 0, a.AM.Bcopy }, sendBcopy},
	{"zcopy", uct.OpAMZcopy, func(a *uct.IfaceAttr) (int, int) { return a.AM.MinZcopy, a.AM.MaxZcopy }, sendZcopy},
}

// forms returns the supported forms.
func (n *node) forms() (fs []form) {
	for _, f := range amForms {
		if n.attr.Ops.Has(f.op) {
			fs = append(fs, f)
		}
	}
	return fs
}

// fits reports whether form f can carry a message of n bytes.
func (f *form) fits(a *uct.IfaceAttr, n int) bool {
	low, high := f.limit(a)
	return low <= n && n <= high
}

func sendShort(l *link, id uct.AMID, header uint64, p []byte) uct.Status {
	return l.AMShort(id, header, p)
}

func sendUint64(l *link, id uct.AMID, header uint64, p []byte) uct.Status {
	return l.AMUint64(id, header, le.Uint64(p))
}

func sendBcopy(l *link, id uct.AMID, header uint64, p []byte) uct.Status {
	b, st := l.ReserveAM(id, header, len(p))
	if st != ok {
		return st
	}
	if len(b) != len(p) {
		l.env.Errorf("ReserveAM of %d bytes returned %d", len(p), len(b))
	}
	l.CommitAM(copy(b, p))
	return ok
}

// sendZcopy sends p, unchanged until the event, in pieces and without a header.
func sendZcopy(l *link, id uct.AMID, header uint64, p []byte) uct.Status {
	t := l.from.token()
	v := l.from.pieces(t, p, min(l.from.attr.AM.MaxVec, 3))
	return l.from.sent(t, l.AMZcopy(id, header, nil, v, t), p, v)
}

// pieces splits p into n pieces of about the same length.
func pieces(p []byte, n int) []uct.Vec {
	v := make([]uct.Vec, n)
	for i := range v {
		v[i].Buf = p[len(p)*i/n : len(p)*(i+1)/n]
	}
	return v
}
