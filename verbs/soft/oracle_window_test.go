package soft

import (
	"errors"
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// oracleWindow is a memory window over a part of its owner's memory for the owner's peer. Its state
// changes when the program knows that a request which changes it has ended:
//
//	free --bind--> open --bind of no bytes, OpLocalInv, OpSendInv of the peer--> free
//	               open --bind (type 1)--> open, with another key and another part
//
// No request of the peer names the window while such a request is under way. Those that the network
// delivers again must have no effect, also after their key is invalid.
type oracleWindow struct {
	mw     verbs.MW
	typ    verbs.MWType
	key    uint32 // of the last bind that ended
	off, n int    // the part of the owner's window memory
	access verbs.Access
	open   bool
	busy   bool // a request that changes it has not ended
}

// windowChange is what a request does to a window when it ends.
type windowChange struct {
	owner *endpoint
	w     *oracleWindow
	to    oracleWindow // the state after it
}

const windowAccess = verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

// openWindows allocates the endpoint's windows.
func (e *endpoint) openWindows() {
	alloc := func(t verbs.MWType) verbs.MW {
		w, err := verbs.AllocMW(e.dev.pd, t)
		e.o.must(err)
		e.dev.open = append(e.dev.open, w)
		return w
	}
	for _, t := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		e.windows = append(e.windows, &oracleWindow{mw: alloc(t), typ: t})
	}
	e.unbound = alloc(verbs.MWType1).RKey()
}

// need is the right that a request needs at the peer.
func need(op verbs.Opcode) verbs.Access {
	switch op {
	case verbs.OpWrite, verbs.OpWriteImm:
		return verbs.RemoteWrite
	case verbs.OpRead:
		return verbs.RemoteRead
	default:
		return verbs.RemoteAtomic
	}
}

// through has x name n bytes of the peer by one of the peer's windows, if one permits it. The
// address is a multiple of align.
func (o *oracle) through(e *endpoint, x *op, n, align int) bool {
	w := pick(o, e.peer.windows...)
	first := (w.off + align - 1) / align * align
	room := (w.off + w.n - n - first) / align
	if !w.open || w.busy || w.access&need(x.wr.Op) == 0 || room < 0 || w.off+w.n < first+n || o.chance(0.5) {
		return false
	}
	x.via, x.wr.RKey, x.off = w, w.key, first+align*o.rng.IntN(room+1)
	return true
}

// uses reports whether a request that has not ended names the window.
func (e *endpoint) uses(w *oracleWindow) bool {
	return slices.ContainsFunc(e.ops[e.next:], func(x *op) bool { return x.via == w })
}

// mayChange reports whether the next request of the endpoint may be one that changes a window.
func (e *endpoint) mayChange() bool {
	p := e.plan
	return len(e.ops) < e.total && !e.failed && (p == nil || p.spoil != nil && p.at != len(e.ops))
}

// changeWindow posts a request that binds a window of the endpoint, or makes its key invalid.
func (e *endpoint) changeWindow() {
	o, w := e.o, pick(e.o, e.windows...)
	if w.busy || e.peer.failed || e.peer.uses(w) {
		return
	}
	inv := verbs.SendWR{Op: verbs.OpLocalInv, Imm: w.key}
	switch {
	case w.open && w.typ == verbs.MWType2 && o.chance(0.5):
		if e.peer.mayChange() {
			e.peer.sendInvalidate(e, w)
		}
	case !e.mayChange():
	case w.open && w.typ == verbs.MWType2:
		e.postChange(&op{wr: inv, change: &windowChange{owner: e, w: w}})
	default:
		e.bind(w, w.open && o.chance(0.5))
	}
}

// bind binds the window to some part of the endpoint's window memory, or to none.
func (e *endpoint) bind(w *oracleWindow, none bool) {
	o := e.o
	to := oracleWindow{off: o.rng.IntN(windowSize / 2), n: 1 + o.rng.IntN(windowSize/2), access: windowAccess, open: !none}
	if o.chance(0.5) {
		to.access = pick(o, verbs.RemoteWrite, verbs.RemoteRead, verbs.RemoteAtomic)
	}
	b := verbs.MWBind{MR: e.window.mr, Addr: e.window.mr.Addr() + uint64(to.off), Len: uint64(to.n), Access: to.access}
	if none {
		b.Len = 0
	}
	i := len(e.ops)
	switch err := verbs.BindWindow(e.qp, uint64(i)|sendID, e.signal(), w.mw, b); {
	case errors.Is(err, ucs.ErrNoResource):
		return
	case err != nil:
		o.fail("%s: bind window: %v", e.name, err)
	}
	to.key = w.mw.RKey()
	if to.key == w.key || to.key == e.unbound {
		o.fail("%s: bind %d has key %#x, as another one", e.name, i, to.key)
	}
	w.busy = true
	e.ops = append(e.ops, &op{wr: verbs.SendWR{Op: verbs.OpBindMW}, signaled: true, change: &windowChange{e, w, to}})
}

// sendInvalidate sends a message that invalidates the key of a window.
func (e *endpoint) sendInvalidate(owner *endpoint, w *oracleWindow) {
	o := e.o
	mark := *e.arena
	x := &op{takes: true, wr: verbs.SendWR{Op: verbs.OpSendInv, Imm: w.key}, change: &windowChange{owner: owner, w: w}}
	o.gather(e, x, o.size(e))
	x.data = slices.Concat(x.local...)
	if !e.postChange(x) {
		e.arena.rewind(&mark)
	}
}

// signal is the flag of a request that must be signalled.
func (e *endpoint) signal() verbs.SendFlags {
	if e.sig {
		return 0
	}
	return verbs.SendSignaled
}

// postChange posts a request that changes a window. It returns false if the queue is full.
func (e *endpoint) postChange(x *op) bool {
	x.wr.ID, x.wr.Flags, x.signaled = uint64(len(e.ops))|sendID, e.signal(), true
	switch n, st := e.qp.PostSend([]verbs.SendWR{x.wr}); {
	case n == 1:
	case st == ucs.NoResource && len(e.ops)-e.next >= sqDepth:
		return false
	default:
		e.o.fail("%s: post %v: %v", e.name, x.wr.Op, st)
	}
	x.change.w.busy = true
	e.ops = append(e.ops, x)
	if x.takes {
		e.msgs = append(e.msgs, x)
	}
	return true
}

// ended applies the change, which has succeeded.
func (c *windowChange) ended(o *oracle, op verbs.Opcode) {
	w := c.w
	if w.open {
		c.owner.stale = append(c.owner.stale, w.key)
	}
	w.key, w.off, w.n, w.access, w.open, w.busy = c.to.key, c.to.off, c.to.n, c.to.access, c.to.open, false
	o.tally["window: "+op.String()]++
}

// staleKey is a key of the endpoint's windows that is invalid. The plan that needs it has this name
// where none was ever valid.
func (e *endpoint) staleKey(p *plan) uint32 {
	if len(e.stale) == 0 {
		p.name = "window not bound"
		return e.unbound
	}
	return pick(e.o, e.stale...)
}

// spoilByWindow makes a request name memory by an open window, one of the peer's or another
// endpoint's, that refuses it: to is the part of the address that changes. Where there is none, it
// names a key that is invalid.
func (e *endpoint) spoilByWindow(wr *verbs.SendWR, owner *endpoint, refuses func(w *oracleWindow) bool, offset func(w *oracleWindow) int) {
	for _, w := range owner.windows {
		if w.open && refuses(w) {
			wr.RKey, wr.Remote = w.key, owner.window.mr.Addr()+uint64(offset(w)&^7)
			return
		}
	}
	e.plan.name = "window key"
	wr.RKey = e.peer.staleKey(e.plan)
}

// windowPlans are the errors of requests by windows.
var windowPlans = []plan{
	{name: "window not bound", want: verbs.WCRemAccessErr, kills: true, ops: remoteOps(), spoil: func(e *endpoint, wr *verbs.SendWR) { wr.RKey = e.peer.unbound }},
	{name: "window key", want: verbs.WCRemAccessErr, kills: true, ops: remoteOps(), spoil: func(e *endpoint, wr *verbs.SendWR) { wr.RKey = e.peer.staleKey(e.plan) }},
	{name: "window range", want: verbs.WCRemAccessErr, kills: true, ops: remoteOps(), spoil: func(e *endpoint, wr *verbs.SendWR) {
		e.spoilByWindow(wr, e.peer, func(*oracleWindow) bool { return true }, func(w *oracleWindow) int { return w.off + w.n })
	}},
	{name: "window right", want: verbs.WCRemAccessErr, kills: true, ops: remoteOps(), spoil: func(e *endpoint, wr *verbs.SendWR) {
		e.spoilByWindow(wr, e.peer, func(w *oracleWindow) bool { return w.access&need(wr.Op) == 0 }, func(w *oracleWindow) int { return w.off + 7 })
	}},
	{name: "window of another queue pair", want: verbs.WCRemAccessErr, kills: true, ops: remoteOps(), spoil: func(e *endpoint, wr *verbs.SendWR) {
		owner := e.peer
		for _, x := range e.o.eps {
			if x != e.peer && x.dev == e.peer.dev && x.windows[1].open {
				owner = x
			}
		}
		e.spoilByWindow(wr, owner, func(w *oracleWindow) bool { return owner != e.peer && w.typ == verbs.MWType2 }, func(w *oracleWindow) int { return w.off + 7 })
	}},
	{name: "invalidation of an invalid key", want: verbs.WCMWBindErr, ops: []verbs.Opcode{verbs.OpLocalInv}, spoil: func(e *endpoint, wr *verbs.SendWR) {
		wr.Imm = e.unbound
		if len(e.stale) > 0 {
			wr.Imm = pick(e.o, e.stale...)
		}
	}},
}
