package ucp

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/goucx/goucx/ucp/internal/request"
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
	op    request.Kind
	ep    uint32
	lane  uint32
	state string
}

// describeRequests describes the requests that have not completed, in groups, the oldest first.
func (w *thread) describeRequests(s *live.Summary, d *display, now ucs.Time) {
	rows := make(map[requestGroup]*live.Requests)
	seen := make(map[uint64]ucs.Time)
	for i := uint32(1); int(i) < len(w.slab.Slots); i++ {
		r := &w.slab.Slots[i]
		switch {
		case r.State == request.StateDone && r.Flags&request.FlagHasResult != 0:
			s.Unread++
		case r.State == request.StateLive && w.isListed(i):
			since := now
			if id := w.slab.ID(i); len(seen) < maxTold {
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
	r := &w.slab.Slots[i]
	if r.Op == request.Flush {
		return r.Flags&request.FlagChild != 0 || r.Parts == 0
	}
	return r.Flags&request.FlagChild == 0
}

// addRequest counts the request in slot i. age is in seconds.
func (w *thread) addRequest(rows map[requestGroup]*live.Requests, i uint32, age float64) {
	r := &w.slab.Slots[i]
	k := requestGroup{r.Op, r.EP, r.Lane, w.stateText(i)}
	bytes := uint64(0)
	switch {
	case k.state == statePosted:
		bytes = uint64(len(w.slab.Bufs[i]))
	case r.Op.Sends():
		bytes = request.As[sendOp](r).length
	case r.Op.Receives():
		bytes = request.As[recvOp](r).length
	case r.Op == request.Put || r.Op == request.Get:
		bytes = request.As[rmaOp](r).length
	}
	row := rows[k]
	if row == nil {
		row = &live.Requests{Op: r.Op.String(), Peer: w.peerName(r.EP), Lane: w.laneName(r.Lane), State: k.state}
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
	r := &w.slab.Slots[i]
	switch {
	case r.Flags&request.FlagPending != 0 && w.lanes[r.Lane].is(slowNoCredit) && r.Op.Sends():
		return stateNoCredit
	case r.Flags&request.FlagPending != 0 && w.lanes[r.Lane].is(slowNoCredit) && r.Op == request.Flush:
		return stateBehind
	case r.Flags&request.FlagPending != 0:
		return stateWaiting
	case r.Op == request.TagRecv && w.posted.Has(i):
		return statePosted
	case r.Op.Receives() && request.As[recvOp](r).requested():
		return stateFetching
	case r.Op == request.Flush && request.As[flushOp](r).stage == flushBehindSends:
		return stateBehind
	case !r.Op.Sends():
		return stateUnderWay
	}
	switch request.As[sendOp](r).phase {
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
	r := &w.slab.Slots[i]
	switch {
	case r.Op == request.TagRecv && w.posted.Has(i):
		tag, mask := w.posted.Pattern(i)
		if mask != ^uint64(0) {
			return fmt.Sprintf("%#x/%#x", tag, mask)
		}
		return fmt.Sprintf("%#x", tag)
	case r.Op.Sends() && r.Op != request.AMSend:
		return fmt.Sprintf("%#x", request.As[sendOp](r).hdr)
	case r.Op == request.TagRecv:
		return fmt.Sprintf("%#x", request.As[recvOp](r).tag)
	default:
		return ""
	}
}
