package ucp

import (
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup"
)

// source is the receiving end of a connection (rx connection). A transport does not
// interleave the fragments of two messages of one rx connection. So it assembles one
// message at a time.
type source struct {
	id    uint32 // assigned by the transport
	index uint32 // in Worker.sources
	port  *port
	count uint32 // fragmented messages begun
	bad   bool   // the peer violated the protocol: all messages from it are dropped
	into  reasmTarget

	// The sending worker, if it sent its address. A peer may only name ids that it was
	// sent: see named.go.
	peer    wireup.PeerID // 0: unknown
	address []byte        // first part of the sender's address
	reply   uint32        // lane to the sender; 0: none yet
	replied bool          // a message that the sender waits for was sent on reply
	left    []uint32      // failed lanes, not reported yet, on which such messages were sent
	told    uint32        // 1 + messages since the sender was told to use rendezvous only; 0: it was not
	swErr   ucs.Status    // first error of its emulated operations; its next flush returns it
	waiting int           // messages whose sender waits for a reply: unexpected, kept, or to be fetched
	fetches int           // receives that wait for the sender's data

	from uint64 // the endpoint of AM.From; 0: none yet

	recv       uint32 // slot of the receive, with reasmRecv
	arrived    uint32 // id in Worker.arrived, with reasmPool
	tag        uint64
	total, got uint64
	chunk      chunk // memory of the message, with reasmPool or reasmHandler
}

// source returns the rx connection with this id of the transport, and creates it if needed.
func (p *port) source(id uint32) *source {
	if p.last != nil && p.last.id == id {
		return p.last
	}
	s := p.sources[id]
	if s == nil {
		s = &source{id: id, port: p}
		p.sources[id] = s
		p.w.addSource(s)
	}
	p.last = s
	return s
}

// addSource assigns an index to s, so that records without pointers can refer to it.
func (w *Worker) addSource(s *source) {
	if n := len(w.freeSources); n > 0 {
		s.index = w.freeSources[n-1]
		w.freeSources = w.freeSources[:n-1]
	} else {
		s.index = uint32(len(w.sources))
		w.sources = append(w.sources, nil)
	}
	w.sources[s.index] = s
}

// peerSays receives a part of the address of the worker that sends on s. follow is the
// number of bytes still to come.
func (p *port) peerSays(s *source, follow uint64, data []byte) {
	w := p.w
	if follow > maxPeerAddress || len(s.address)+len(data) > maxPeerAddress {
		p.garbage(s)
		return
	}
	s.address = append(s.address, data...)
	if follow > 0 {
		return
	}
	peer, err := w.peers.Add(s.address)
	s.address = nil
	if err != nil || s.peer != 0 && s.peer != peer {
		if err == nil {
			w.peers.Release(peer)
		}
		p.garbage(s)
		return
	}
	if s.peer != 0 { // it was received before
		w.peers.Release(peer)
	}
	s.peer = peer
}

// replyLane returns the lane to the sender of s, and opens it if needed. It returns 0 if
// the sender is unknown or not reachable.
func (w *Worker) replyLane(s *source) uint32 {
	if s.reply != 0 {
		return s.reply
	}
	if s.peer == 0 {
		return 0
	}
	lane, _ := w.openBest(s.peer)
	if lane == 0 {
		return 0
	}
	// The source's reference is counted in lane.replies, not in lane.refs. It does not keep
	// a lane open after the program closed all endpoints to the peer. Otherwise two workers
	// that replied to each other would keep their connection for ever.
	l := &w.t.lanes[lane]
	l.refs--
	l.replies++
	s.reply = lane
	return lane
}

// anotherReply replaces a reply lane whose connection has failed before the failure was
// reported to UCP: the sender of s has made another connection. Operations that wait for
// the report stay with the old lane.
//
//go:noinline
func (w *Worker) anotherReply(s *source) uint32 {
	old := s.reply
	if s.replied {
		s.leave()
	} else {
		w.dropReply(s)
	}
	if old != 0 {
		w.forgetLane(old)
	}
	return w.replyLane(s)
}

// repliedBy reports whether a message that the sender of s waits for was sent on lane i.
func (s *source) repliedBy(i uint32) bool { return s != nil && s.reply == i && s.replied }

// leave detaches s from its reply lane, whose connection has failed, and remembers the lane
// in left. Later replies use another lane.
func (s *source) leave() {
	s.left = append(s.left, s.reply)
	s.reply, s.replied = 0, false
}

// unreplied removes lane i, which has failed, from s. It reports whether a message that the
// sender of s waits for may be lost with it.
func (s *source) unreplied(i uint32) (lost bool) {
	if s.reply == i {
		lost = s.replied
		s.reply, s.replied = 0, false
	}
	if k := slices.Index(s.left, i); k >= 0 {
		s.left = slices.Delete(s.left, k, k+1)
		lost = true
	}
	return lost
}

// dropReply drops the reference of s to its reply lane.
func (w *Worker) dropReply(s *source) {
	lane := s.reply
	if s.reply, s.replied = 0, false; lane != 0 {
		w.dropReplyLane(lane)
	}
}

// dropReplyLane drops an rx connection's reference to a lane. The last reference closes the
// lane, or leaves it draining while reads of memory are in progress.
func (w *Worker) dropReplyLane(lane uint32) {
	l := &w.t.lanes[lane]
	l.replies--
	switch {
	case l.refs > 0 || l.replies > 0:
	case l.reads+l.lent > 0:
		l.parted = true
	default:
		w.closeLane(lane)
	}
}

// sourceEnded removes an rx connection. Its incomplete messages fail with reason.
func (p *port) sourceEnded(id uint32, reason error) {
	s := p.sources[id]
	if s == nil {
		return
	}
	w := p.w
	w.loseSource(s, reason)
	if s.bad {
		p.careful--
	}
	delete(p.sources, id)
	p.last = nil
	w.dropReply(s)
	left := s.left
	s.left = nil // closeLane looks at s.left
	for _, i := range left {
		w.dropReplyLane(i)
	}
	if s.peer != 0 {
		w.peers.Release(s.peer)
	}
	w.sources[s.index] = nil
	w.freeSources = append(w.freeSources, s.index)
}

// loseSource fails the messages and the data that were expected from s.
func (w *Worker) loseSource(s *source, reason error) {
	w.setRecvErr(s, reason)
	w.dropPartial(s, ucs.PeerFailed)
	w.loseRendezvous(s, reason)
}

// garbage fails an rx connection whose peer violated the protocol, and all lanes to that
// peer. Connections to other peers are not affected.
func (p *port) garbage(s *source) {
	w := p.w
	w.count.Inc(cntProtocolError)
	s.bad = true
	p.careful++
	w.loseSource(s, errProtocol)
	if s.peer == 0 {
		return
	}
	for i := range w.t.lanes {
		if l := &w.t.lanes[i]; i != 0 && l.ep != nil && l.peer == s.peer {
			w.failLane(uint32(i), errProtocol)
		}
	}
}
