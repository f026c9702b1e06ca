package perf

import (
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// The tag of all messages, and the mask that matches only it.
const (
	tagData  ucp.Tag = 0xa
	tagExact         = ^ucp.Tag(0)
)

// ucpTag is tag_lat, tag_bw, tag_sync_lat and tag_sync_bw.
type ucpTag struct {
	*ucpSide
	echo    func(n int64, st *stamps) error // n times: receive one, send one
	loop    func(n int) error
	mask    ucp.Tag
	opts    ucp.Opts
	scratch *stamps
	posted  []ucp.RecvRequest
	sent    ucp.Request // the last send of a ping-pong
	probed  *runUntil   // until a message has arrived, with Params.Unexpected
	filled  int64       // messages sent with their pattern
	checked int64       // messages validated
}

func newUCPTag(s *ucpSide) kernel {
	k := &ucpTag{
		ucpSide: s, mask: tagExact, scratch: newScratch(),
		posted: make([]ucp.RecvRequest, len(s.window)),
	}
	if s.p.Wildcard {
		k.mask = 0
	}
	k.echo, k.loop = k.echoPlain, k.burstPlain
	if s.p.Registered {
		k.opts = ucp.Opts{Mem: s.out}
		k.echo, k.loop = k.echoChecked, k.burstPost
	}
	if s.test.Op == OpTagSync {
		k.echo, k.loop = k.echoSync, k.burstPost
	}
	if s.p.Unexpected {
		k.probed = &runUntil{s.link, func() bool {
			_, there := k.w.TagProbe(tagData, k.mask)
			return there
		}}
	}
	if s.thread != nil {
		k.echo = k.echoThread
	}
	if s.p.Validate || s.p.Unexpected {
		k.echo = k.echoChecked
	}
	if s.link.g.Size() == 1 {
		k.loop = k.burstAlone
	}
	return k
}

func (k *ucpTag) active(n int64, st *stamps) error {
	if k.test.Pattern == Stream {
		if err := stream(k, n, st, k.link); err != nil {
			return err
		}
		return k.flush()
	}
	if err := k.send(); err != nil {
		return err
	}
	st.restamp()
	if err := k.echo(n-1, st); err != nil {
		return err
	}
	if err := k.receive(); err != nil {
		return err
	}
	st.tick()
	return k.wait(k.sent)
}

func (k *ucpTag) passive(n int64) error {
	switch {
	case k.test.Pattern == PingPong:
		if err := k.echo(n, k.scratch); err != nil {
			return err
		}
		return k.wait(k.sent)
	case k.p.Unexpected:
		for range n {
			if err := k.receive(); err != nil {
				return err
			}
		}
		return nil
	default:
		return k.receiveAll(n)
	}
}

// send sends one message of a ping-pong outside of the measured loops. Like those it does not wait
// for the send to complete. A sync send, and a rendezvous send, completes only after the receiver
// has posted a receive, and in loopback the receiver is this thread. The next send waits for the
// completion, because it uses the same buffer.
func (k *ucpTag) send() error {
	if err := k.wait(k.sent); err != nil {
		return err
	}
	if k.p.Validate {
		fill(k.buf, k.filled)
		k.filled++
	}
	k.sent = k.post()
	return nil
}

// receive receives one message outside of the measured loops.
func (k *ucpTag) receive() error {
	if k.p.Unexpected {
		if err := k.awaitUntil(k.probed); err != nil {
			return err
		}
	}
	r := k.w.TagRecv(k.in, tagData, k.mask)
	if err := k.received(r); err != nil {
		return err
	}
	m, err := r.Wait(k.link)
	if err != nil || !k.p.Validate {
		return err
	}
	if at := check(k.in, k.checked); at >= 0 || m.Len != len(k.in) || m.Tag != tagData {
		return fmt.Errorf("message %d is wrong: tag %#x, %d of %d bytes, first bad byte %d", k.checked, m.Tag, m.Len, len(k.in), at)
	}
	k.checked++
	return nil
}

// receiveAll is the receiving side of a stream: it keeps a window of receives posted until n
// messages have arrived.
//
//go:noinline
func (k *ucpTag) receiveAll(n int64) error {
	w, in, mask, posted := k.w, k.in, k.mask, k.posted
	first := min(n, int64(len(posted)))
	for i := range first {
		posted[i] = w.TagRecv(in, tagData, mask)
	}
	i := 0
	for range n - first {
		if _, err := posted[i].Wait(k.link); err != nil {
			return err
		}
		posted[i] = w.TagRecv(in, tagData, mask)
		if i++; i == len(posted) {
			i = 0
		}
	}
	for range first {
		if _, err := posted[i].Wait(k.link); err != nil {
			return err
		}
		if i++; i == len(posted) {
			i = 0
		}
	}
	return nil
}

func (k *ucpTag) burst(n int) error            { return k.loop(n) }
func (k *ucpTag) each(n int, st *stamps) error { return eachOf(k, n, st) }

//
//hot:bench BenchmarkRun/tag_lat
//go:noinline
func (k *ucpTag) echoPlain(n int64, st *stamps) error {
	w, ep, in, out, mask, l, sent := k.w, k.ep, k.in, k.buf, k.mask, k.link, k.sent
	for range n {
		if _, err := w.TagRecv(in, tagData, mask).Wait(l); err != nil {
			return err
		}
		if err := sent.Wait(l); err != nil {
			return err
		}
		sent = ep.TagSend(out, tagData)
		st.tick()
	}
	k.sent = sent
	return nil
}

// echoSync waits for each send to complete before the next one. It completes with the other side's
// receive, which is posted before the other side replies.
//
//hot:bench BenchmarkRun/tag_sync_lat
//go:noinline
func (k *ucpTag) echoSync(n int64, st *stamps) error {
	w, ep, in, out, mask, l := k.w, k.ep, k.in, k.buf, k.mask, k.link
	for range n {
		if _, err := w.TagRecv(in, tagData, mask).Wait(l); err != nil {
			return err
		}
		if err := k.sent.Wait(l); err != nil {
			return err
		}
		k.sent = ep.TagSendSync(out, tagData)
		st.tick()
	}
	return nil
}

// echoThread waits for each message with the worker alone once the Thread has sent the one before.
//
//go:noinline
func (k *ucpTag) echoThread(n int64, st *stamps) error {
	w, in, mask, l := k.w, k.in, k.mask, k.link
	for range n {
		r := w.TagRecv(in, tagData, mask)
		if err := k.received(r); err != nil {
			return err
		}
		if _, err := r.Wait(l); err != nil {
			return err
		}
		if err := k.wait(k.sent); err != nil {
			return err
		}
		k.sent = k.post()
		st.tick()
	}
	return nil
}

// received waits until r, or the send before it, is complete, if a Thread sends: a receive's own wait
// would not progress the Thread.
func (k *ucpTag) received(r ucp.RecvRequest) error {
	for k.thread != nil && !k.sent.Done() && !r.Done() {
		k.thread.Progress()
		if err := k.idle(); err != nil {
			return err
		}
	}
	return nil
}

// echoChecked validates each message, posts the receive after its message has arrived, or sends
// registered memory, as the parameters say.
//
//go:noinline
func (k *ucpTag) echoChecked(n int64, st *stamps) error {
	for range n {
		if err := k.receive(); err != nil {
			return err
		}
		if err := k.send(); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}

//
//hot:bench BenchmarkRun/tag_bw
//go:noinline
func (k *ucpTag) burstPlain(n int) error {
	ep, out := k.ep, k.buf
	for range n {
		if r := ep.TagSend(out, tagData); r != (ucp.Request{}) {
			if err := k.enqueue(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// burstPost sends registered memory, or synchronously.
//
//hot:bench BenchmarkRun/tag_sync_bw
//go:noinline
func (k *ucpTag) burstPost(n int) error {
	for range n {
		if r := k.post(); r != (ucp.Request{}) {
			if err := k.enqueue(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// burstAlone receives what it sends itself.
//
//go:noinline
func (k *ucpTag) burstAlone(n int) error {
	w, in, mask, l := k.w, k.in, k.mask, k.link
	for range n {
		var posted ucp.RecvRequest
		if !k.p.Unexpected {
			posted = w.TagRecv(in, tagData, mask)
		}
		k.sent = k.post()
		if k.sent != (ucp.Request{}) {
			if err := k.enqueue(k.sent); err != nil {
				return err
			}
		}
		if k.p.Unexpected {
			if err := k.awaitUntil(k.probed); err != nil {
				return err
			}
			posted = w.TagRecv(in, tagData, mask)
		}
		if err := k.received(posted); err != nil {
			return err
		}
		if _, err := posted.Wait(l); err != nil {
			return err
		}
	}
	return nil
}

// post starts a send of the test's kind.
func (k *ucpTag) post() ucp.Request {
	if k.test.Op == OpTagSync {
		return k.ep.TagSendSync(k.buf, tagData)
	}
	return k.ep.TagSendWith(k.buf, tagData, k.opts)
}
