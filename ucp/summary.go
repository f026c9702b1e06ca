package ucp

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats/live"
)

// maxTold bounds the requests whose age a summary tracks.
const maxTold = 4096

// summary returns a description of the worker for humans. The caller is the worker's owner
// or holds its lock.
func (w *thread) summary(d *display, now ucs.Time) live.Summary {
	s := live.Summary{
		Unexpected: w.unexpQueue.Len(), UnexpectedBytes: w.budget.used, UnexpectedBudget: w.budget.limit, AllocatedBytes: w.pool.Allocated,
		Peers: []live.Endpoint{}, Requests: []live.Requests{},
	}
	w.describeEndpoints(&s)
	w.describeRequests(&s, d, now)
	return s
}

// describeEndpoints counts all endpoints and describes those that are connected or failed,
// failed ones first.
func (w *thread) describeEndpoints(s *live.Summary) {
	var failed, connected []uint32
	for k := range w.eps {
		e := &w.eps[k]
		if !e.inUse {
			continue
		}
		s.Endpoints++
		switch {
		case e.status != ucs.OK:
			s.Failed++
			failed = append(failed, uint32(k))
		case e.lane != 0:
			s.Connected++
			if len(connected) < live.MaxRows {
				connected = append(connected, uint32(k))
			}
		}
	}
	for _, k := range failed[:min(len(failed), live.MaxRows)] {
		s.Peers = append(s.Peers, w.describeEndpoint(k))
	}
	for _, k := range connected[:min(len(connected), live.MaxRows-len(s.Peers))] {
		s.Peers = append(s.Peers, w.describeEndpoint(k))
	}
}

func (w *thread) describeEndpoint(k uint32) live.Endpoint {
	e := live.Endpoint{Peer: w.peerName(k), State: "connected", Lanes: []live.Lane{}}
	if w.eps[k].status != ucs.OK {
		e.State = "failed"
		if c := w.cold[k]; c != nil && c.err != nil {
			e.Error = c.err.Error()
		}
	}
	for n := w.laneOf[w.eps[k].peer]; n != 0; n = w.lanes[n].next {
		l := &w.lanes[n]
		row := live.Lane{Name: w.laneName(n), Pending: l.pending, RndvOnly: l.is(slowRndvOnly)}
		if l.err != nil {
			row.Error = l.err.Error()
		}
		e.Lanes = append(e.Lanes, row)
	}
	return e
}

// requestGroup is what the requests of one row have in common.
type requestGroup struct {
	op    opKind
	ep    uint32
	lane  uint32
	state string
}

// describeRequests describes the requests that have not completed, in groups, the oldest first.
func (w *thread) describeRequests(s *live.Summary, d *display, now ucs.Time) {
	rows := make(map[requestGroup]*live.Requests)
	seen := make(map[uint64]ucs.Time)
	for i := uint32(1); int(i) < len(w.slab.slots); i++ {
		r := &w.slab.slots[i]
		switch {
		case r.state == slotDone && r.flags&flagHasResult != 0:
			s.Unread++
		case r.state == slotLive && w.isListed(i):
			since := now
			if id := w.slab.id(i); len(seen) < maxTold {
				if t, ok := d.liveSince[id]; ok {
					since = t
				}
				seen[id] = since
			}
			w.addRequest(rows, i, now.Sub(since).Seconds())
		}
	}
	d.liveSince = seen
	for _, r := range rows {
		s.Requests = append(s.Requests, *r)
	}
	slices.SortFunc(s.Requests, func(a, b live.Requests) int {
		return cmp.Or(cmp.Compare(b.OldestSeconds, a.OldestSeconds), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.State, b.State))
	})
	s.Requests = s.Requests[:min(len(s.Requests), live.MaxRows)]
}

// isListed reports whether the request in slot i belongs to a row. Parts do not, except those
// of a flush, which wait for different things.
func (w *thread) isListed(i uint32) bool {
	r := &w.slab.slots[i]
	if r.op == opFlush {
		return r.flags&flagChild != 0 || r.parts == 0
	}
	return r.flags&flagChild == 0
}

// addRequest counts the request in slot i. age is in seconds.
func (w *thread) addRequest(rows map[requestGroup]*live.Requests, i uint32, age float64) {
	r := &w.slab.slots[i]
	k := requestGroup{r.op, r.ep, r.lane, w.stateText(i)}
	bytes := uint64(0)
	switch {
	case k.state == statePosted:
		bytes = uint64(len(w.slab.bufs[i]))
	case r.op.sends():
		bytes = as[sendOp](r).length
	case r.op.receives():
		bytes = as[recvOp](r).length
	case r.op == opPut || r.op == opGet:
		bytes = as[rmaOp](r).length
	}
	row := rows[k]
	if row == nil {
		row = &live.Requests{Op: r.op.String(), Peer: w.peerName(r.ep), Lane: w.laneName(r.lane), State: k.state}
		rows[k] = row
	}
	row.Count++
	row.Bytes += bytes
	if row.Count == 1 || age > row.OldestSeconds {
		row.OldestSeconds, row.Tag = age, w.tagText(i)
	}
}

// States of requests in summaries.
const (
	statePosted   = "posted"
	stateWaiting  = "waiting for room"
	stateNoCredit = "held back"
	stateMatch    = "not matched"
	stateRTS      = "announced"
	stateData     = "sending"
	stateFetching = "fetching"
	stateBehind   = "behind sends"
	stateUnderWay = "under way"
)

// stateText returns the state of the request in slot i.
func (w *thread) stateText(i uint32) string {
	r := &w.slab.slots[i]
	switch {
	case r.flags&flagPending != 0 && w.lanes[r.lane].is(slowNoCredit) && r.op.sends():
		return stateNoCredit
	case r.flags&flagPending != 0 && w.lanes[r.lane].is(slowNoCredit) && r.op == opFlush:
		return stateBehind
	case r.flags&flagPending != 0:
		return stateWaiting
	case r.op == opTagRecv && w.posted.Has(i):
		return statePosted
	case r.op.receives() && as[recvOp](r).requested():
		return stateFetching
	case r.op == opFlush && as[flushOp](r).stage == flushBehindSends:
		return stateBehind
	case !r.op.sends():
		return stateUnderWay
	}
	switch as[sendOp](r).phase {
	case phaseMatch:
		return stateMatch
	case phaseRTS:
		return stateRTS
	case phaseData:
		return stateData
	default:
		return stateUnderWay
	}
}

// tagText returns the tag of the request in slot i, "" if it has none.
func (w *thread) tagText(i uint32) string {
	r := &w.slab.slots[i]
	switch {
	case r.op == opTagRecv && w.posted.Has(i):
		tag, mask := w.posted.Pattern(i)
		if mask != ^uint64(0) {
			return fmt.Sprintf("%#x/%#x", tag, mask)
		}
		return fmt.Sprintf("%#x", tag)
	case r.op.sends() && r.op != opAMSend:
		return fmt.Sprintf("%#x", as[sendOp](r).hdr)
	case r.op == opTagRecv:
		return fmt.Sprintf("%#x", as[recvOp](r).tag)
	default:
		return ""
	}
}
