//go:build linux

package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// Receives that a member keeps posted, and messages that it holds at most.
const (
	anyReceives    = 16
	cancelReceives = 4
	tiedReceives   = 2
	heldMessages   = 8
)

// receive is a posted receive of some class.
type receive struct {
	req ucp.RecvRequest
	p   []byte
}

// event is what a callback leaves for the member's goroutine.
type event struct {
	kind eventKind
	id   uint32 // of the other member
	n    uint32 // of the message, or of the endpoint
	err  error
	from ucp.Endpoint
	kept ucp.RetainedAM
	key  uint64
}

type eventKind uint8

const (
	eventFailure eventKind = iota // of endpoint n
	eventWrong                    // a broken promise
	eventAsked                    // message n wants a reply
	eventReply                    // to message n
	eventKept                     // a message that was kept
)

func (m *member) push(e event) {
	m.mu.Lock()
	m.events = append(m.events, e)
	m.mu.Unlock()
	m.w.Signal()
}

// handleAM checks an active message: content, order, and the put that it notifies of.
// Handlers of a worker run one at a time.
func (m *member) handleAM(a *ucp.AM) {
	if len(a.Header) != amHeadLen {
		m.push(event{kind: eventWrong, err: fmt.Errorf("an active message with a header of %d bytes", len(a.Header))})
		return
	}
	h := a.Header
	id, n := binary.LittleEndian.Uint32(h), binary.LittleEndian.Uint32(h[4:])
	fail := func(err error) {
		m.push(event{kind: eventWrong, err: fmt.Errorf("active message %d of member %d (%d bytes, rendezvous %t): %w", n, id, a.Len, a.Rendezvous, err)})
	}
	m.mu.Lock()
	due := m.ams[id]
	m.ams[id]++
	m.mu.Unlock()
	if n != due && !m.Unordered {
		fail(fmt.Errorf("number %d was due", due))
	}
	key := m.keyOf(id, m.ID, amClass, n)
	if a.Len != sizeOf(key) {
		fail(fmt.Errorf("its length is not %d", sizeOf(key)))
	} else if !a.Rendezvous {
		if err := m.amCheck.check(a.Data, key); err != nil {
			fail(err)
		}
	}
	switch amKind(h[8]) {
	case amPlain:
	case amPut:
		if err := m.lookAt(&m.amCheck, uint32(h[10]), int(h[9]), binary.LittleEndian.Uint64(h[16:])); err != nil {
			fail(fmt.Errorf("a put before a fence and this message: %w", err))
		}
		fallthrough
	case amAsk:
		m.push(event{kind: eventAsked, id: id, n: n, from: a.From})
	}
	if a.Rendezvous || key%8 == 0 {
		m.push(event{kind: eventKept, id: id, n: n, kept: a.Retain(), key: key})
	}
}

func (m *member) handleReply(a *ucp.AM) {
	m.push(event{kind: eventReply, id: binary.LittleEndian.Uint32(a.Header), n: binary.LittleEndian.Uint32(a.Header[4:])})
}

// drainEvents does what callbacks have left.
func (m *member) drainEvents() bool {
	m.mu.Lock()
	events := m.events
	m.events = nil
	m.mu.Unlock()
	for _, e := range events {
		l := m.link(e.id)
		switch e.kind {
		case eventFailure:
			l.calls[e.n]++
			l.fail(fmt.Errorf("OnFailure of endpoint %d: %w", e.n, e.err))
		case eventWrong:
			m.anomaly("%v", e.err)
		case eventAsked:
			req := e.from.AMSend(replyID, m.amHeader(e.n, amPlain, 0, 0), nil)
			m.post(fmt.Sprintf("reply %d to member %d", e.n, e.id), req, func() error {
				err := req.Err()
				if errors.Is(err, ucp.ErrClosed) {
					err = ucp.ErrPeerFailed // it had failed before
				}
				return m.lost(e.id, "reply", err)
			})
		case eventReply:
			if l == nil || l.state != linkOpen {
				break
			}
			if r := l.replies[e.n]; r != nil && !r.got {
				r.got = true
			} else {
				m.anomaly("reply %d of member %d came twice, or was never asked for", e.n, e.id)
			}
		case eventKept:
			m.kept = append(m.kept, e)
		}
	}
	return len(events) > 0
}

// lost hides that a sender has ended; the controller judges whether it may have.
func (m *member) lost(id uint32, what string, err error) error {
	if err == nil || !ended(err) {
		return err
	}
	m.say(line{Kind: "failed", ID: id, Text: fmt.Sprintf("%s: %v", what, err)})
	return nil
}

// takeKept ends one kept message.
func (m *member) takeKept() bool {
	if len(m.kept) == 0 || len(m.kept) < heldMessages && !m.resting && m.rnd.IntN(4) > 0 {
		return false
	}
	i := m.rnd.IntN(len(m.kept))
	e := m.kept[i]
	m.kept = append(m.kept[:i], m.kept[i+1:]...)
	switch b := e.kept.Bytes(); {
	case b != nil: // it came with its data
		if err := m.check.check(b, e.key); err != nil {
			m.anomaly("kept active message %d of member %d: %v", e.n, e.id, err)
		}
		e.kept.Release()
	case m.rnd.IntN(8) == 0:
		e.kept.Refuse(errors.New(refusal))
	case m.rnd.IntN(8) == 0:
		e.kept.Release()
	default:
		p := m.buffer(e.kept.Len())
		req := e.kept.RecvInto(p)
		m.post(fmt.Sprintf("fetch of active message %d of member %d", e.n, e.id), req, func() error {
			_, err := req.Wait(context.Background())
			if err == nil {
				err = m.check.check(p, e.key)
			}
			m.release(p, err)
			return m.lost(e.id, "fetch of an active message", err)
		})
	}
	return true
}

// stream is what a sender's tag messages are due to be.
type stream struct{ next [numClasses]uint32 }

func (m *member) stream(id uint32) *stream {
	s := m.streams[id]
	if s == nil {
		s = new(stream)
		m.streams[id] = s
	}
	return s
}

// inOrder checks the place of a message in its sender's order.
func (m *member) inOrder(class int, msg ucp.Message) (id uint32, key uint64) {
	c, id, n := parseTag(msg.Tag)
	s := m.stream(id)
	if c != class {
		m.anomaly("a receive of class %d got tag %#x", class, uint64(msg.Tag))
	}
	switch due := s.next[c]; {
	case n < due:
		m.anomaly("message %d of class %d of member %d where %d was due", n, c, id, due)
	case n > due && c != classCancel:
		// A message that was announced is lost where its sender is killed.
		m.say(line{Kind: "gap", ID: id, Text: fmt.Sprintf("message %d of class %d where %d was due", n, c, due)})
	}
	s.next[c] = n + 1
	m.got++
	key = m.keyOf(id, m.ID, c, n)
	if msg.Len != sizeOf(key) {
		m.anomaly("message %d of class %d of member %d has %d bytes, not %d", n, c, id, msg.Len, sizeOf(key))
	}
	return id, key
}

// take handles the receives that have ended, in the order of their posting, which is
// that of matching.
func (m *member) take(ring []*receive, class int, sender uint32) (rest []*receive) {
	for len(ring) > 0 && ring[0].req.Done() {
		r := ring[0]
		ring = ring[1:]
		msg, err := r.req.Wait(context.Background())
		if err == nil {
			_, key := m.inOrder(class, msg)
			if err := m.check.check(r.p[:msg.Len], key); err != nil {
				m.anomaly("message %#x: %v", uint64(msg.Tag), err)
			}
		}
		m.release(r.p, err)
		if class == classCancel && errors.Is(err, ucp.ErrCanceled) {
			err = nil
		}
		if err := m.lost(sender, "receive", err); err != nil {
			m.anomaly("receive of class %d of member %d: %v", class, sender, err)
		}
	}
	return ring
}

func (m *member) recv(class int, id uint32, mask ucp.Tag) *receive {
	r := &receive{p: m.buffer(longest)}
	r.req = m.w.TagRecv(r.p, tagOf(class, id, 0), mask)
	return r
}

// receive takes in what has arrived and posts receives again.
func (m *member) receive() bool {
	if m.Fault == "deaf" {
		return false
	}
	before := m.got
	for m.any = m.take(m.any, classAny, 0); len(m.any) < anyReceives; {
		m.any = append(m.any, m.recv(classAny, 0, byClass))
	}
	if m.rnd.IntN(20) == 0 && len(m.cancel) > 0 {
		m.cancel[m.rnd.IntN(len(m.cancel))].req.Cancel()
	}
	for m.cancel = m.take(m.cancel, classCancel, 0); len(m.cancel) < cancelReceives; {
		m.cancel = append(m.cancel, m.recv(classCancel, 0, byClass))
	}
	for _, l := range m.links {
		l.tied = m.take(l.tied, classTied, l.id)
		for l.state == linkOpen && len(l.tied) < tiedReceives {
			r := m.recv(classTied, l.id, byClass|bySender)
			r.req = r.req.Tie(l.eps[mainEP])
			l.tied = append(l.tied, r)
		}
		if l.state != linkOpen && len(l.tied) == 0 {
			// What was accepted before the peer ended can still be received.
			m.takeOut(classTied, l.id, byClass|bySender)
		}
	}
	m.takeOut(classTaken, 0, byClass)
	return m.got != before
}

// takeOut takes a message out of matching, to receive it then or later.
func (m *member) takeOut(class int, id uint32, mask ucp.Tag) {
	tag := tagOf(class, id, 0)
	if probed, ok := m.w.TagProbe(tag, mask); ok {
		t, ok := m.w.TagMprobe(tag, mask)
		if !ok || t.Message != probed {
			m.anomaly("TagMprobe returns %v, %t after TagProbe returned %v", t.Message, ok, probed)
		}
		from, key := m.inOrder(class, t.Message)
		m.taken = append(m.taken, taken{t, from, key})
	}
	if len(m.taken) == 0 || len(m.taken) < heldMessages && !m.resting && m.rnd.IntN(4) > 0 {
		return
	}
	i := m.rnd.IntN(len(m.taken))
	t := m.taken[i]
	m.taken = append(m.taken[:i], m.taken[i+1:]...)
	n := t.Len
	switch m.rnd.IntN(8) {
	case 0:
		if class == classTaken {
			t.Drop()
			return
		}
	case 1:
		n /= 2
	}
	p := m.buffer(n)
	req := t.Recv(p)
	m.post(fmt.Sprintf("receive of a message taken from member %d", t.from), req, func() error {
		msg, err := req.Wait(context.Background())
		if n < t.Len && errors.Is(err, ucp.ErrTruncated) || n == t.Len && err == nil {
			if err = m.check.check(p, t.key); err == nil && msg != t.Message {
				err = fmt.Errorf("it is %v, not %v", msg, t.Message)
			}
		} else if err == nil {
			err = fmt.Errorf("a receive of %d bytes of %d has no error", n, t.Len)
		}
		m.release(p, err)
		return m.lost(t.from, "receive of a taken message", err)
	})
}

// taken is a message out of matching.
type taken struct {
	ucp.MatchedMessage
	from uint32
	key  uint64
}

// received counts what a member has sent and this one has received.
func (m *member) received(id uint32) sent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return sent{Tags: m.stream(id).next, AMs: m.ams[id]}
}

// complete reports what has arrived whole.
func (m *member) complete() {
	for id, want := range m.expected {
		got := m.received(id)
		got.Tags[classCancel], want.Tags[classCancel] = 0, 0
		want.Shared = 0
		for c, n := range got.Tags {
			if n > want.Tags[c] {
				m.anomaly("member %d sent %+v, and %+v arrived", id, want, got)
			}
		}
		if got == want {
			delete(m.expected, id)
			m.say(line{Kind: "complete", ID: id})
		}
	}
}
