//go:build linux

package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goucx/goucx/ucp"
)

// Classes of tag messages, by how they are received.
const (
	classAny    = iota // by receives of any sender
	classTied          // by receives of one sender, tied to its endpoint
	classTaken         // by TagProbe and TagMprobe
	classCancel        // by receives that are cancelled at times, as the sends are
)

// tagOf encodes class, sender and number; the class is never 0.
func tagOf(class int, id, n uint32) ucp.Tag {
	return ucp.Tag(class+1)<<60 | ucp.Tag(id)<<32 | ucp.Tag(n)
}

// Masks of receives.
const (
	byClass  ucp.Tag = 0xf << 60
	bySender ucp.Tag = 0xffffffff << 32
)

func parseTag(t ucp.Tag) (class int, id, n uint32) {
	return int(t>>60) - 1, uint32(t>>32) & 0xfffffff, uint32(t)
}

// keyOf is the content of a message.
func (m *member) keyOf(from, to uint32, class int, n uint32) uint64 {
	return mix(m.Seed, uint64(from), uint64(to), uint64(class), uint64(n))
}

// amClass is the class of active messages for keyOf, memClass of what is put.
const (
	amClass  = 100
	memClass = 101
)

// next numbers and writes the next message of a class.
func (l *link) next(class int) (p []byte, tag ucp.Tag) {
	n := l.sent.Tags[class]
	l.sent.Tags[class]++
	if class == classAny {
		n = l.m.faultyNumber(n)
	}
	key := l.m.keyOf(l.m.ID, l.id, class, n)
	p = l.m.buffer(sizeOf(key))
	fill(p, key)
	if l.m.Fault == "content" && n > faultAt && len(p) > 0 {
		p[len(p)/2]++
	}
	l.m.bytes += uint64(len(p))
	return p, tagOf(class, l.m.ID, n)
}

// send sends a message in one form or another.
func (l *link) send(class int) {
	m, e := l.m, l.eps[mainEP]
	p, tag := l.next(class)
	var req ucp.Request
	form, size := "send", len(p)
	switch pick := m.rnd.IntN(10); {
	case pick < 2 && len(p) == 8:
		form = "send of a word"
		req = e.TagSendUint64(binary.LittleEndian.Uint64(p), tag)
	case pick < 3 && len(p) <= e.MaxInline():
		form = "inline send"
		req = e.TagSendInline(p, tag)
		m.pool.put(p) // it was copied
		p = nil
	case pick < 4:
		form = "vector send"
		req = e.TagSendV(l.pieces(p), tag)
	case pick < 6:
		form = "sync send"
		req = e.TagSendSync(p, tag)
	case pick < 7:
		form = "eager send"
		req = e.TagSendWith(p, tag, ucp.Opts{Flags: ucp.ForceEager})
	case pick < 8:
		form = "rendezvous send"
		req = e.TagSendWith(p, tag, ucp.Opts{Flags: ucp.ForceRendezvous})
	default:
		req = e.TagSend(p, tag)
	}
	_, _, number := parseTag(tag)
	l.record(fmt.Sprintf("%s of class %d", form, class), number, size)
	end := func(err error) error {
		m.release(p, err)
		if class == classTaken && errors.Is(err, ucp.ErrRejected) {
			return nil
		}
		return err
	}
	if m.rnd.IntN(8) > 0 {
		l.post(form, mainEP, req, func() error { return end(req.Err()) })
		return
	}
	n := &notified{Request: req}
	if !req.Notify(func(c ucp.Completion) { n.err = c.Err; n.done.Store(true); m.w.Signal() }, 0) {
		n.err = req.Err()
		n.done.Store(true)
	}
	l.post(form+" with Notify", noEP, n, func() error { return end(n.err) })
}

// pieces cuts p into up to 16, some of them empty.
func (l *link) pieces(p []byte) (ps [][]byte) {
	for n := l.m.rnd.IntN(16); n > 0; n-- {
		k := l.m.rnd.IntN(len(p) + 1)
		ps, p = append(ps, p[:k:k]), p[k:]
	}
	return append(ps, p)
}

// sendAndCancel sends a message that may or may not be received.
func (l *link) sendAndCancel() {
	m, e := l.m, l.eps[mainEP]
	p, tag := l.next(classCancel)
	l.record("send to be cancelled", 0, len(p))
	var req ucp.Request
	if m.rnd.IntN(2) == 0 {
		req = e.TagSend(p, tag)
	} else {
		req = e.TagSendSync(p, tag)
	}
	end := func(err error) error {
		m.release(p, err)
		if errors.Is(err, ucp.ErrCanceled) || errors.Is(err, ucp.ErrRejected) {
			return nil
		}
		return err
	}
	if m.rnd.IntN(2) == 0 {
		l.cancels = append(l.cancels, l.post("send to be cancelled", mainEP, req, func() error { return end(req.Err()) }))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(m.rnd.IntN(1000))*time.Microsecond)
	defer cancel()
	m.ops++
	err := req.Finish(ctx)
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ucp.ErrCanceled) {
		if slices.Contains(m.Without, "bare") {
			err = nil
		} else {
			err = wrongf("Finish returns the bare error of its context: %v", err)
		}
	}
	l.result("Finish", end(err))
}

// Active messages. The header names the sender and the kind:
//
//	0 sender u32 | 4 number u32 | 8 kind u8 | 9 region u8 | 10 sender's slot u8 | 16 key of the region's content u64
const (
	amID      ucp.AMID = 7
	replyID   ucp.AMID = 8
	amHeadLen          = 24
)

type amKind uint8

const (
	amPlain amKind = iota
	amAsk          // requests a reply
	amPut          // notifies of a put, and requests a reply
)

func (m *member) amHeader(n uint32, kind amKind, region int, content uint64) []byte {
	b := make([]byte, amHeadLen)
	binary.LittleEndian.PutUint32(b, m.ID)
	binary.LittleEndian.PutUint32(b[4:], n)
	b[8], b[9], b[10] = byte(kind), byte(region), byte(m.Slot)
	binary.LittleEndian.PutUint64(b[16:], content)
	return b
}

// sendAM sends an active message that may want a reply.
func (l *link) sendAM() {
	if l.m.rnd.IntN(4) == 0 {
		l.ask(amAsk, 0, 0, nil)
		return
	}
	l.postAM(amPlain, 0, 0)
}

// refusal is the reason of members that refuse a rendezvous.
const refusal = "this member refuses some"

func (l *link) postAM(kind amKind, region int, content uint64) (n uint32) {
	m, e := l.m, l.eps[mainEP]
	n = l.sent.AMs
	l.sent.AMs++
	key := m.keyOf(m.ID, l.id, amClass, n)
	p := m.buffer(sizeOf(key))
	fill(p, key)
	m.bytes += uint64(len(p))
	h := m.amHeader(n, kind, region, content)
	flags := [...]ucp.Flags{0, 0, ucp.ForceEager, ucp.ForceRendezvous}[m.rnd.IntN(4)]
	if kind != amPlain {
		flags |= ucp.WantReply
	}
	l.record(fmt.Sprintf("active message %#x", flags), n, len(p))
	req := e.AMSendWith(amID, h, p, ucp.Opts{Flags: flags})
	clear(h) // it was copied
	l.post("active message", mainEP, req, func() error {
		err := req.Err()
		m.release(p, err)
		if errors.Is(err, ucp.ErrRejected) && strings.Contains(err.Error(), refusal) {
			return nil
		}
		return err
	})
	return n
}

// ask sends an active message and waits for its reply.
func (l *link) ask(kind amKind, region int, content uint64, then func()) {
	n := l.postAM(kind, region, content)
	r := &reply{l: l}
	l.replies[n] = r
	l.post("reply", noEP, r, func() error {
		delete(l.replies, n)
		if then != nil {
			then()
		}
		return nil
	})
}

// flushAll flushes the worker.
func (m *member) flushAll() {
	var before []*op
	for _, l := range m.links {
		for _, o := range l.pending {
			if o.ep != noEP {
				before = append(before, o)
			}
		}
	}
	req := m.w.Flush()
	m.post("worker flush", req, func() error {
		if err := req.Err(); err != nil && !ended(err) {
			return err // of an endpoint whose peer has ended: its link reports it
		} else if err != nil {
			return nil
		}
		return m.allDone(before)
	})
}

func (m *member) fenceAll() {
	m.w.Fence()
	for _, l := range m.links {
		l.fenced()
	}
}
