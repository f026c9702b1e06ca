package verbstest

import (
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// The faulty objects.
type (
	polling struct {
		verbs.CQ
		poll func(q verbs.CQ, wcs []verbs.WC) int
	}
	arming struct {
		verbs.CQ
		arm func(q verbs.CQ, solicitedOnly bool) ucs.Status
	}
	posting struct {
		verbs.QP
		send func(q verbs.QP, wrs []verbs.SendWR) (int, ucs.Status)
		recv func(q verbs.QP, wrs []verbs.RecvWR) (int, ucs.Status)
	}
	accepting struct{ verbs.QP } // any Modify
	modest    struct{ verbs.QP } // says less than it has
	keyed     struct {
		verbs.MR
		key uint32
	}
	undying struct{ verbs.MR } // goes on after Close
	unbusy  struct{ verbs.MR } // says that it was closed
	lasting struct{ verbs.MW } // goes on after Close
	hasty   struct{ verbs.CQ } // delays no event
	fixed   struct{ verbs.MR } // keeps its registration
	granted struct{ verbs.MR } // gets all rights when it is registered anew
	telling struct {
		verbs.CompChannel
		try func(c verbs.CompChannel) (uint64, bool)
	}
	silent struct { // keeps events of a type for itself
		verbs.Context
		about verbs.EventType
	}
	unlimited struct{ verbs.SRQ } // has no limit
)

func (p polling) Poll(wcs []verbs.WC) int { return p.poll(p.CQ, wcs) }

func (a arming) Arm(solicitedOnly bool) ucs.Status { return a.arm(a.CQ, solicitedOnly) }

func (p posting) PostSend(wrs []verbs.SendWR) (int, ucs.Status) {
	if p.send == nil {
		return p.QP.PostSend(wrs)
	}
	return p.send(p.QP, wrs)
}

func (p posting) PostRecv(wrs []verbs.RecvWR) (int, ucs.Status) {
	if p.recv == nil {
		return p.QP.PostRecv(wrs)
	}
	return p.recv(p.QP, wrs)
}

func (a accepting) Modify(v *verbs.QPAttr, mask verbs.AttrMask) error {
	_ = a.QP.Modify(v, mask)
	return nil
}

func (m modest) Query() verbs.QPAttr {
	a := m.QP.Query()
	a.Caps.MaxSend = 0
	return a
}

func (k keyed) RKey() uint32 { return k.key }
func (undying) Close() error { return nil }

func (u unbusy) Close() error {
	_ = u.MR.Close()
	return nil
}

func (lasting) Close() error { return nil }

func (hasty) Moderate(int, time.Duration) error { return nil }

func (fixed) Reregister(verbs.PD, []byte, verbs.MRConfig) error { return nil }

func (g granted) Reregister(pd verbs.PD, buf []byte, c verbs.MRConfig) error {
	c.Access = everything
	return verbs.Reregister(g.MR, pd, buf, c)
}

func (c telling) TryEvent() (uint64, bool) { return c.try(c.CompChannel) }

func (s silent) TryAsync() (verbs.AsyncEvent, bool) {
	v, ok := s.Context.TryAsync()
	if ok && v.Type == s.about {
		s.Ack(v)
		return verbs.AsyncEvent{}, false
	}
	return v, ok
}

func (unlimited) SetLimit(int) ucs.Status { return ucs.OK }

// each changes every completion.
func each(change func(w *verbs.WC)) func(verbs.CQ) verbs.CQ {
	return func(q verbs.CQ) verbs.CQ {
		return polling{q, func(q verbs.CQ, wcs []verbs.WC) int {
			n := q.Poll(wcs)
			for i := range max(n, 0) {
				change(&wcs[i])
			}
			return n
		}}
	}
}

// sends changes every request.
func sends(change func(w *verbs.SendWR)) func(verbs.QP) verbs.QP {
	return func(q verbs.QP) verbs.QP {
		return posting{QP: q, send: func(q verbs.QP, wrs []verbs.SendWR) (int, ucs.Status) {
			for i, w := range wrs {
				change(&w)
				if n, st := q.PostSend([]verbs.SendWR{w}); n == 0 {
					return i, st
				}
			}
			return len(wrs), ucs.OK
		}}
	}
}

func injects(as Manner) func(*Fabric) {
	return func(f *Fabric) {
		inject := f.Inject
		f.Inject = func(to int, b []byte, _ Manner) { inject(to, b, as) }
	}
}

func modifies(mask verbs.AttrMask, change func(*verbs.QPAttr)) func(*verbs.QPAttr, verbs.AttrMask) {
	return func(a *verbs.QPAttr, m verbs.AttrMask) {
		if m&mask != 0 {
			change(a)
		}
	}
}

var mutants = []mutant{
	{"a post is taken in any state", "post/send-by-state", faults{qp: func(q verbs.QP) verbs.QP {
		return posting{QP: q, send: func(q verbs.QP, wrs []verbs.SendWR) (int, ucs.Status) {
			q.PostSend(wrs)
			return len(wrs), ucs.OK
		}}
	}}},
	{"a receive is taken in any state", "post/receive-by-state", faults{qp: func(q verbs.QP) verbs.QP {
		return posting{QP: q, recv: func(q verbs.QP, wrs []verbs.RecvWR) (int, ucs.Status) {
			q.PostRecv(wrs)
			return len(wrs), ucs.OK
		}}
	}}},
	{"a list goes on behind its fault", "post/list", faults{qp: func(q verbs.QP) verbs.QP {
		return posting{QP: q, send: func(q verbs.QP, wrs []verbs.SendWR) (n int, st ucs.Status) {
			for i := range wrs {
				k, s := q.PostSend(wrs[i : i+1])
				if n += k; s != ucs.OK {
					st = s
				}
			}
			return n, st
		}}
	}}},
	{"a full queue takes and forgets", "post/full", faults{qp: func(q verbs.QP) verbs.QP {
		return posting{QP: q, recv: func(q verbs.QP, wrs []verbs.RecvWR) (int, ucs.Status) {
			if n, st := q.PostRecv(wrs); st != ucs.NoResource {
				return n, st
			}
			return len(wrs), ucs.OK
		}}
	}}},
	{"all is signalled", "completion/unsignalled", faults{qp: sends(func(w *verbs.SendWR) { w.Flags |= verbs.SendSignaled })}},
	{"signal-all is forgotten", "completion/signal-all", faults{qpConfig: func(c *verbs.QPConfig) { c.SignalAll = false }}},
	{"solicited everywhere", "completion/solicited-bit", faults{qp: sends(func(w *verbs.SendWR) { w.Flags |= verbs.SendSolicited })}},
	{"immediate data is lost", "completion/receive-fields", faults{cq: each(func(w *verbs.WC) { w.Imm = 0 })}},
	{"all flushed is well", "completion/flush-by-err", faults{cq: each(func(w *verbs.WC) { w.Status = verbs.WCSuccess })}},
	{"a datagram's length is its data's", "datagram/fields", faults{cq: each(func(w *verbs.WC) {
		if w.Flags&verbs.WCGRH != 0 {
			w.Len -= grhArea
		}
	})}},
	{"a datagram has no sender", "datagram/fields", faults{cq: each(func(w *verbs.WC) { w.SrcQP = 0 })}},
	{"pairs of completions change places", "completion/order", faults{cq: func(q verbs.CQ) verbs.CQ {
		return polling{q, func(q verbs.CQ, wcs []verbs.WC) int {
			n := q.Poll(wcs)
			if n > 1 {
				wcs[0], wcs[1] = wcs[1], wcs[0]
			}
			return n
		}}
	}}},
	{"one completion a poll", "queue/batches", faults{cq: func(q verbs.CQ) verbs.CQ {
		return polling{q, func(q verbs.CQ, wcs []verbs.WC) int { return q.Poll(wcs[:min(1, len(wcs))]) }}
	}}},
	{"an overrun is not seen", "queue/overrun", faults{cqConfig: func(c *verbs.CQConfig) { c.IgnoreOverrun = true }}},
	{"a queue belongs to no domain", "thread/domain-queue", faults{cqConfig: func(c *verbs.CQConfig) { c.Domain = nil }}},
	{"any change of state is taken", "state/cells", faults{qp: func(q verbs.QP) verbs.QP { return accepting{q} }}},
	{"less than was asked for", "object/qp-caps", faults{qp: func(q verbs.QP) verbs.QP { return modest{q} }}},
	{"keys repeat", "memory/keys-vary", faults{mr: func(m verbs.MR) verbs.MR { return keyed{m, 7} }}},
	{"keys live on", "memory/stale-remote-key", faults{mr: func(m verbs.MR) verbs.MR { return undying{m} }}},
	{"addresses are the process's always", "memory/iova", faults{mrConfig: func(c *verbs.MRConfig) { c.HasIOVA = false }}},
	{"any memory can be invalidated", "memory/not-revocable", faults{mrConfig: func(c *verbs.MRConfig) { c.Revocable = true }}},
	{"memory has all rights", "protection/remote-rights", faults{mrConfig: func(c *verbs.MRConfig) { c.Access = everything }}},
	{"receives may go anywhere", "protection/receive", faults{mrConfig: func(c *verbs.MRConfig) { c.Access |= everything }}},
	{"queue pairs have all rights", "protection/qp-rights", faults{modify: modifies(verbs.AttrAccessFlags, func(a *verbs.QPAttr) { a.Access = everything })}},
	{"one retry more", "retry/exact-count", faults{modify: modifies(verbs.AttrRetryCnt, func(a *verbs.QPAttr) { a.RetryCnt = min(7, a.RetryCnt+1) })}},
	{"one retry less", "retry/counts-anew", faults{modify: modifies(verbs.AttrRetryCnt, func(a *verbs.QPAttr) { a.RetryCnt = 0 })}},
	{"one wait more", "retry/receiver-never", faults{modify: modifies(verbs.AttrRNRRetry, func(a *verbs.QPAttr) { a.RNRRetry++ })}},
	{"what is lost stays lost", "loss/drop-each", faults{modify: modifies(verbs.AttrTimeout, func(a *verbs.QPAttr) { a.Timeout = 0 })}},
	{"impatient senders", "retry/receiver-timer", faults{modify: modifies(verbs.AttrMinRNRTimer, func(a *verbs.QPAttr) { a.MinRNRTimer = 1 })}},
	{"half the time-out", "retry/peer-silent", faults{modify: modifies(verbs.AttrTimeout, func(a *verbs.QPAttr) { a.Timeout-- })}},
	{"time-outs without being asked", "retry/no-time-out", faults{modify: modifies(verbs.AttrTimeout, func(a *verbs.QPAttr) { a.Timeout = max(a.Timeout, 8) })}},
	{"more reads than agreed", "data/reads-in-flight", faults{modify: modifies(verbs.AttrMaxRdAtomic, func(a *verbs.QPAttr) { a.MaxRdAtomic++ })}},
	{"smaller packets than agreed", "data/psn-count", faults{modify: modifies(verbs.AttrPathMTU, func(a *verbs.QPAttr) { a.PathMTU-- })}},
	{"adds one too many", "atomic/fetch-add", faults{qp: sends(func(w *verbs.SendWR) {
		if w.Op == verbs.OpFetchAdd {
			w.Swap++
		}
	})}},
	{"swaps always", "atomic/compare-swap", faults{qp: sends(func(w *verbs.SendWR) {
		if w.Op == verbs.OpCompareSwap && w.Compare > 1<<62 {
			w.Compare = 0x1122334455667788
		}
	})}},
	{"a byte less", "data/write", faults{qp: sends(func(w *verbs.SendWR) {
		if w.SG[0].Len > 1024 {
			w.SG[0].Len--
		}
	})}},
	{"any key opens datagrams", "datagram/wrong-qkey", faults{qp: sends(func(w *verbs.SendWR) { w.QKey = 0x11111 })}},
	{"any address may send", "forgery/source", faults{fabric: injects(Genuine)}},
	{"nobody looks at the checksum", "forgery/icrc", faults{fabric: injects(Genuine)}},
	{"packets are dropped that are right", "forgery/taken", faults{fabric: injects(Damaged)}},
	{"requests that need a response are taken", "unreliable/opcodes", faults{qp: func(q verbs.QP) verbs.QP {
		return posting{QP: q, send: func(q verbs.QP, wrs []verbs.SendWR) (int, ucs.Status) {
			q.PostSend(wrs)
			return len(wrs), ucs.OK
		}}
	}}},
	{"immediate data is lost without a connection's care", "unreliable/immediate", faults{cq: each(func(w *verbs.WC) { w.Imm = 0 })}},
	{"what is lost arrives", "unreliable/lost-packet", faults{fabric: func(f *Fabric) {
		filter := f.Filter
		f.Filter = func(judge func(Packet) Verdict) {
			if judge == nil {
				filter(nil)
				return
			}
			filter(func(p Packet) Verdict {
				judge(p)
				return Verdict{}
			})
		}
	}}},
	{"memory has all rights, also for an unreliable connection", "unreliable/missing-right", faults{modify: modifies(verbs.AttrAccessFlags, func(a *verbs.QPAttr) { a.Access = everything })}},
	{"windows have all rights", "window/rights", faults{bind: func(b *verbs.MWBind) { b.Access = windowRightsAll }}},
	{"windows are longer than asked", "window/bounds", faults{bind: func(b *verbs.MWBind) { b.Len += 8 }}},
	{"windows cannot be taken back", "window/unbind", faults{bind: func(b *verbs.MWBind) {
		if b.Len == 0 {
			b.Addr, b.Len = b.MR.Addr()+windowFrom, windowLen
			b.Access = windowRightsAll
		}
	}}},
	{"memory with a window goes", "window/region-busy", faults{mr: func(m verbs.MR) verbs.MR { return unbusy{m} }}},
	{"windows live on", "window/closed", faults{mw: func(w verbs.MW) verbs.MW { return lasting{w} }}},
	{"memory keeps its registration", "memory/reregister", faults{mr: func(m verbs.MR) verbs.MR { return fixed{m} }}},
	{"another registration gives all rights", "memory/reregister-access", faults{mr: func(m verbs.MR) verbs.MR { return granted{m} }}},
	{"events are not delayed", "event/moderation-count", faults{cq: func(q verbs.CQ) verbs.CQ { return hasty{q} }}},
	{"events come too early", "event/moderation-period", faults{cq: func(q verbs.CQ) verbs.CQ { return hasty{q} }}},
	{"arming does nothing", "event/arm", faults{cq: func(q verbs.CQ) verbs.CQ {
		return arming{q, func(verbs.CQ, bool) ucs.Status { return ucs.OK }}
	}}},
	{"everything is solicited", "event/solicited", faults{cq: func(q verbs.CQ) verbs.CQ {
		return arming{q, func(q verbs.CQ, _ bool) ucs.Status { return q.Arm(false) }}
	}}},
	{"nothing but the solicited", "event/one-shot", faults{cq: func(q verbs.CQ) verbs.CQ {
		return arming{q, func(q verbs.CQ, _ bool) ucs.Status { return q.Arm(true) }}
	}}},
	{"events of nobody", "event/arm", faults{channel: func(c verbs.CompChannel) verbs.CompChannel {
		return telling{c, func(c verbs.CompChannel) (uint64, bool) {
			_, ok := c.TryEvent()
			return 0, ok
		}}
	}}},
	{"no limit", "srq/limit", faults{srq: func(q verbs.SRQ) verbs.SRQ { return unlimited{q} }}},
	{"the limit is not told", "srq/limit", faults{context: func(c verbs.Context) verbs.Context { return silent{c, verbs.EventSRQLimitReached} }}},
	{"the last receive is not told", "srq/last-wqe", faults{context: func(c verbs.Context) verbs.Context { return silent{c, verbs.EventQPLastWQEReached} }}},
	{"the first packet is not told", "async/communication-established", faults{context: func(c verbs.Context) verbs.Context { return silent{c, verbs.EventCommEst} }}},
	{"refusals are not told", "async/access", faults{context: func(c verbs.Context) verbs.Context { return silent{c, verbs.EventQPAccessErr} }}},
}
