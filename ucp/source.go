package ucp

import (
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup"
)

// source is a connection that messages come by. Fragments of one message are
// not mixed with others of the same source, so it assembles one at a time.
type source struct {
	id    uint32 // of the transport
	index uint32 // in Worker.sources
	port  *port
	count uint32 // messages in fragments begun
	bad   bool   // it broke the protocol: everything from it is dropped
	into  intoKind

	// Who sends by it, where he said so. Only what he has been sent may be named
	// by him.
	peer    wireup.PeerID // 0: not known
	address []byte        // beginning of his address
	reply   uint32        // lane towards him; 0: none yet
	replied bool          // something that he awaits went by it
	left    []uint32      // lanes that something went by, which are over; not reported yet
	told    uint32        // messages since he was told to announce everything, and 1; 0: he was not
	swErr   ucs.Status    // of his software operations, for his next flush
	waiting int           // of Worker.un: messages that want an answer of ours
	fetches int           // receives that wait for his data

	from uint64 // the endpoint of AM.From; 0: none yet

	recv       uint32 // slot, with intoReceive
	arrived    uint32 // number in Worker.arrived, with intoPool
	tag        uint64
	total, got uint64
	chunk      chunk // memory, with intoPool
}

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

// addSource numbers s, so that records without pointers can name it.
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

// peerSays takes in the address of the worker that sends by s.
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
	if s.peer != 0 { // said before
		w.peers.Release(peer)
	}
	s.peer = peer
}

// replyLane gives the lane towards the sender of s, opening it where need be; 0
// where there is none.
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
	// The source holds the lane in its own way: it does not keep a lane open that
	// the program has closed all endpoints of, else two workers that have answered
	// each other would never part.
	l := &w.t.lanes[lane]
	l.refs--
	l.replies++
	s.reply = lane
	return lane
}

// anotherReply is replyLane where the one before is of a connection that is over,
// though this is not reported yet: the sender of s has made another. What waits for
// the report stays with the old lane.
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

// repliedBy reports whether something that s awaits went by lane i.
func (s *source) repliedBy(i uint32) bool { return s != nil && s.reply == i && s.replied }

// leave has answers to s go by another lane: that of those before is over.
func (s *source) leave() {
	s.left = append(s.left, s.reply)
	s.reply, s.replied = 0, false
}

// unreplied forgets lane i, which is over, and reports whether something that s awaits
// may be lost with it.
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

// dropReply gives up the lane of s.
func (w *Worker) dropReply(s *source) {
	lane := s.reply
	if s.reply, s.replied = 0, false; lane != 0 {
		w.dropReplyLane(lane)
	}
}

// dropReplyLane gives up a source's hold of a lane.
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

// sourceEnded forgets a connection whose messages will not be continued.
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
	s.left = nil // a lane that closes looks there
	for _, i := range left {
		w.dropReplyLane(i)
	}
	if s.peer != 0 {
		w.peers.Release(s.peer)
	}
	w.sources[s.index] = nil
	w.freeSources = append(w.freeSources, s.index)
}

// loseSource ends what was to come from s.
func (w *Worker) loseSource(s *source, reason error) {
	w.explain(s, reason)
	w.drop(s, ucs.PeerFailed)
	w.loseRendezvous(s, reason)
}

// garbage fails a source that broke the protocol, and the lanes to its sender;
// no other is moved.
func (p *port) garbage(s *source) {
	w := p.w
	w.count.Inc(cntBad)
	s.bad = true
	p.careful++
	w.loseSource(s, errGarbage)
	if s.peer == 0 {
		return
	}
	for i := range w.t.lanes {
		if l := &w.t.lanes[i]; i != 0 && l.ep != nil && l.peer == s.peer {
			w.failLane(uint32(i), errGarbage)
		}
	}
}
