package perf

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Active message IDs: data, and the receiver's count of received messages.
const (
	amData uct.AMID = 1
	amAck  uct.AMID = 2
)

// uctAM is am_lat and am_bw.
type uctAM struct {
	*uctSide
	form    form
	data    []byte // payload of short and bcopy
	head    []byte
	vecs    []uct.Vec
	scratch *stamps // for the side that measures nothing
	sent    int64
	window  int64
	limit   int   // maximum number of outstanding zero-copy sends
	filled  int64 // messages sent with their pattern
	checked int64 // messages validated
}

// form holds what differs between the layouts: sending one message, and the loops.
type form struct {
	post  func() uct.Status
	echo  func(n int64, st *stamps) error // n times: receive one, send one
	burst func(n int) error
}

func newUCTAM(s *uctSide) uctKernel {
	k := &uctAM{uctSide: s, scratch: newScratch(), window: int64(s.p.AMWindow), limit: s.p.window(s.test)}
	switch s.p.Layout {
	case Short:
		k.form = form{k.postShort, k.echoShort, k.burstShort}
	case Bcopy:
		k.form = form{k.postBcopy, k.echoPost, k.burstPost}
	case Zcopy:
		k.form = form{k.postZcopy, k.echoPost, k.burstPost}
	}
	if s.p.Validate {
		k.form.echo = k.echoPost
	}
	return k
}

// prepare splits the message into what each form sends.
func (k *uctAM) prepare() {
	n, h := k.p.Size(), k.p.amHeader(k.test)
	switch k.p.Layout {
	case Short:
		k.data = k.buf[:n-h]
	case Bcopy:
		k.data = k.buf[:n]
	case Zcopy:
		k.head, k.vecs = k.buf[:h], k.pieces(h)
	}
}

func (k *uctAM) active(n int64, st *stamps) error {
	k.prepare()
	if k.test.Pattern == Stream {
		if err := stream(k, n, st, k.link); err != nil {
			return err
		}
		return k.flush()
	}
	if err := k.sendFirst(); err != nil {
		return err
	}
	st.restamp()
	if err := k.form.echo(n-1, st); err != nil {
		return err
	}
	err := k.await()
	st.tick()
	return err
}

func (k *uctAM) passive(n int64) error {
	k.prepare()
	if k.test.Pattern != Stream {
		return k.form.echo(n, k.scratch)
	}
	for k.sent += n; k.got < k.sent; {
		if err := k.idle(); err != nil {
			return err
		}
		if err := k.acknowledge(); err != nil {
			return err
		}
	}
	return nil
}

// sendFirst sends the message that starts a ping-pong.
func (k *uctAM) sendFirst() error {
	if k.p.Validate {
		fill(k.message(), k.filled)
		k.filled++
	}
	return k.postOne(k.form.post)
}

// await waits for the next message of a ping-pong.
func (k *uctAM) await() error {
	k.sent++
	for k.got < k.sent {
		if err := k.idle(); err != nil {
			return err
		}
	}
	return nil
}

// acknowledge sends the number of received messages to the sender of a stream, every half window.
func (k *uctAM) acknowledge() error {
	if k.got-k.acks < (k.window+1)/2 {
		return nil
	}
	if err := k.postOne(func() uct.Status { return k.ep.AMShort(amAck, uint64(k.got), nil) }); err != nil {
		return err
	}
	k.acks = k.got
	return nil
}

// room waits until the window has room for another message.
//
//go:noinline
func (k *uctAM) room() error {
	for k.sent-k.acked >= k.window {
		if err := k.idle(); err != nil {
			return err
		}
		if k.alone {
			if err := k.acknowledge(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *uctAM) burst(n int) error            { return k.form.burst(n) }
func (k *uctAM) each(n int, st *stamps) error { return eachOf(k, n, st) }
func (k *uctAM) postShort() uct.Status        { return k.ep.AMShort(amData, 0, k.data) }
func (k *uctAM) postZcopy() uct.Status        { return k.ep.AMZcopy(amData, 0, k.head, k.vecs, 1) }
func (k *uctAM) message() []byte              { return k.buf[:k.payload()] }
func (k *uctAM) payload() int64 {
	if k.p.Layout == Short {
		return k.p.Size() - k.p.amHeader(k.test)
	}
	return k.p.Size()
}

func (k *uctAM) postBcopy() uct.Status {
	b, st := k.ep.ReserveAM(amData, 0, len(k.data))
	if st == ucs.OK {
		copy(b, k.data)
		k.ep.CommitAM(len(k.data))
	}
	return st
}

//go:noinline
func (k *uctAM) echoShort(n int64, st *stamps) error {
	ep, p := k.ep, k.data
	for range n {
		k.sent++
		for k.got < k.sent {
			if err := k.idle(); err != nil {
				return err
			}
		}
		for {
			s := ep.AMShort(amData, 0, p)
			if s == ucs.OK {
				break
			}
			if err := k.retry(s); err != nil {
				return err
			}
		}
		st.tick()
	}
	return nil
}

// echoPost is the ping-pong of all forms but short, and of those with validation by HandleAM.
//
//go:noinline
func (k *uctAM) echoPost(n int64, st *stamps) error {
	for range n {
		if err := k.await(); err != nil {
			return err
		}
		if err := k.drain(0); err != nil {
			return err
		}
		if err := k.sendFirst(); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}

//go:noinline
func (k *uctAM) burstShort(n int) error {
	ep, p := k.ep, k.data
	for range n {
		if k.sent-k.acked >= k.window {
			if err := k.room(); err != nil {
				return err
			}
		}
		for {
			s := ep.AMShort(amData, 0, p)
			if s == ucs.OK {
				break
			}
			if err := k.retry(s); err != nil {
				return err
			}
		}
		k.sent++
	}
	return nil
}

// burstPost is the stream of all forms but short.
//
//go:noinline
func (k *uctAM) burstPost(n int) error {
	for range n {
		if k.sent-k.acked >= k.window {
			if err := k.room(); err != nil {
				return err
			}
		}
		if err := k.postAll(1, k.limit, k.form.post); err != nil {
			return err
		}
		k.sent++
	}
	return nil
}

// HandleAM counts messages and validates them if requested.
func (k *uctAM) HandleAM(mem []byte, ds []uct.Desc) uint64 {
	if !k.p.Validate {
		return k.uctSide.HandleAM(mem, ds)
	}
	for i := range ds {
		d := &ds[i]
		data := mem[d.Off : d.Off+d.Len]
		if at := check(data, k.checked); at >= 0 || int64(len(data)) != k.payload() {
			k.failed = fmt.Errorf("message %d over %s is wrong: %d of %d bytes, first bad byte %d", k.checked, k.name, len(data), k.payload(), at)
		}
		k.checked++
		k.got++
	}
	return 0
}
