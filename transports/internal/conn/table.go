package conn

import (
	"iter"
	"slices"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
)

// Table holds the connections of an interface, by slot and by peer. N identifies a peer.
//
// A call that notices the end of a connection only records it: Schedule puts the connection into a
// queue. The next Progress calls Service, which does the rest and makes callbacks.
type Table[N comparable, C Connection] struct {
	// Slots holds the connections by slot; the zero value is a free slot.
	Slots []C
	// ByPeer holds the connections with each peer, oldest first.
	ByPeer map[N][]C

	hooks     Hooks[C]
	free      []int
	queue     Queue[C] // waits for Service
	active    int      // endpoints that the layer above uses
	accepted  atomic.Int64
	evictedAt ucs.Time // last search for idle connections
}

// Hooks are what Table needs from its interface.
type Hooks[C Connection] struct {
	Handler uct.Handler
	Stats   *stats.Set
	Failed  int // the counter of failed connections in Stats
	// Wake makes the next Progress call Service.
	Wake func()
	// Reject makes the operations of a connection that has failed return an error.
	Reject func(C)
	// Active returns the number of connections that hold resources. Limit is the number above
	// which idle ones are suspended.
	Active func() int
	Limit  int
	// Uses returns the number of messages sent and received on a connection. ok is false if it
	// cannot be suspended now.
	Uses func(C) (n uint64, ok bool)
}

// Init sets the hooks of an empty table.
func (t *Table[N, C]) Init(h Hooks[C]) {
	t.hooks, t.ByPeer, t.queue = h, map[N][]C{}, Queue[C]{Mark: inService}
}

// NextSlot returns the slot that Insert would use.
func (t *Table[N, C]) NextSlot() int {
	if n := len(t.free); n > 0 {
		return t.free[n-1]
	}
	return len(t.Slots)
}

// Insert adds a connection with a peer, and sets its Source.
func (t *Table[N, C]) Insert(c C, peer N) {
	slot := t.NextSlot()
	if n := len(t.free); n > 0 {
		t.free = t.free[:n-1]
		t.Slots[slot] = c
	} else {
		t.Slots = append(t.Slots, c)
	}
	c.conn().Source = uint32(slot) + 1
	t.ByPeer[peer] = append(t.ByPeer[peer], c)
}

// Remove removes a connection and frees its slot.
func (t *Table[N, C]) Remove(c C, peer N) {
	var none C
	slot := c.conn().Slot()
	t.Slots[slot] = none
	t.free = append(t.free, slot)
	cs := t.ByPeer[peer]
	if i := slices.Index(cs, c); len(cs) > 1 {
		t.ByPeer[peer] = slices.Delete(cs, i, i+1)
	} else {
		delete(t.ByPeer, peer)
	}
}

// Clear removes all connections.
func (t *Table[N, C]) Clear() {
	t.Slots, t.ByPeer, t.queue.list = nil, nil, nil
}

// Len returns the number of connections.
func (t *Table[N, C]) Len() int { return len(t.Slots) - len(t.free) }

// at returns the connection with that source number, or the zero value.
func (t *Table[N, C]) at(source uint32) (c C) {
	if i := int(source) - 1; i >= 0 && i < len(t.Slots) {
		c = t.Slots[i]
	}
	return c
}

// Activate counts an endpoint that the layer above uses.
func (t *Table[N, C]) Activate() { t.active++ }

// Deactivate undoes one Activate.
func (t *Table[N, C]) Deactivate() { t.active-- }

// ActiveEndpoints returns the number of those, plus the connections on which peers may send.
func (t *Table[N, C]) ActiveEndpoints() int { return t.active + int(t.accepted.Load()) }

// Count includes c in ActiveEndpoints.
func (t *Table[N, C]) Count(c C) {
	if c.conn().Add(Counted) {
		t.accepted.Add(1)
	}
}

// Uncount undoes Count.
func (t *Table[N, C]) Uncount(c C) {
	if c.conn().Drop(Counted) {
		t.accepted.Add(-1)
	}
}

// FailLater ends the connection with err. The next Progress reports that.
func (t *Table[N, C]) FailLater(c C, err error) {
	if !c.conn().Fail(err) {
		return
	}
	if IsFailure(err) {
		t.hooks.Stats.Inc(t.hooks.Failed)
	}
	t.hooks.Reject(c)
	t.Schedule(c)
}

// Disconnect ends a connection on which the peer may still send.
func (t *Table[N, C]) Disconnect(source uint32) {
	var none C
	if c := t.at(source); c != none && !c.conn().Has(RxEndReported) {
		t.FailLater(c, ErrDisconnected)
	}
}

// Schedule lets the next Progress check whether the connection has ended.
func (t *Table[N, C]) Schedule(c C) {
	t.queue.Add(c)
	t.hooks.Wake()
}

// Service calls serve for the scheduled connections, until there are none, and returns the sum of
// its results.
func (t *Table[N, C]) Service(serve func(C) int) (n int) {
	for len(t.queue.list) > 0 {
		for c := range t.queue.Drain() {
			if c.conn().Life != Released {
				n += serve(c)
			}
		}
	}
	return n
}

// Report reports the end of a connection, if the layer above knows it: as an endpoint, or by its
// messages. unused tells that nothing was sent or received. It returns the number of reports.
func (t *Table[N, C]) Report(c C, unused bool) int {
	b := c.conn()
	b.Life.Step(Report)
	var fail uct.Failure
	if !b.Has(RxEndReported) && c.HasReceived() {
		fail.RxConn = b.Source
	}
	if b.Has(Opened) {
		fail.Endpoint, fail.NeverConnected = c, unused
	}
	if fail == (uct.Failure{}) {
		return 0
	}
	if IsFailure(b.Err) {
		fail.Err = b.Err
	} else {
		fail.Acked = fail.Endpoint != nil && !b.Has(Unacked)
	}
	t.hooks.Handler.HandleFailure(fail)
	return 1
}

// ReportRxEnd reports once that the peer sends no more, though it may still receive. An endpoint
// that replies on the connection would otherwise keep it open. It returns the number of reports.
func (t *Table[N, C]) ReportRxEnd(c C) int {
	b := c.conn()
	if !b.Add(RxEndReported) || !c.HasReceived() {
		return 0
	}
	t.hooks.Handler.HandleFailure(uct.Failure{RxConn: b.Source})
	return 1
}

// Queue is a list of connections without duplicates: Mark is set in the facts of its members.
type Queue[C Connection] struct {
	Mark        Facts
	list, spare []C
}

// Add appends c, unless it is a member.
func (q *Queue[C]) Add(c C) {
	if c.conn().Add(q.Mark) {
		q.list = append(q.list, c)
	}
}

// Len returns the number of members.
func (q *Queue[C]) Len() int { return len(q.list) }

// Drain removes all members and iterates over them. A member may be added again once it was visited.
func (q *Queue[C]) Drain() iter.Seq[C] {
	return func(yield func(C) bool) {
		list := q.list
		q.list, q.spare = q.spare[:0], nil
		for _, c := range list {
			c.conn().Drop(q.Mark)
			if !yield(c) {
				return
			}
		}
		clear(list)
		q.spare = list
	}
}
