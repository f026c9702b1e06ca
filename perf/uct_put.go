package perf

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// uctPut is put_lat and put_bw. In a ping-pong each side writes its message number into the last
// byte, by which the other side detects the message. The receiver of a stream does not poll:
// polling the cache line that is written would slow the writer down.
type uctPut struct {
	*uctSide
	form    form
	data    []byte
	vecs    []uct.Vec
	last    lastByte
	scratch *stamps
	seq     byte  // number of the last message awaited or sent
	limit   int   // maximum number of outstanding puts
	end     int64 // offset of the message's last byte in buf
}

func newUCTPut(s *uctSide) uctKernel {
	k := &uctPut{uctSide: s, scratch: newScratch(), limit: s.p.window(s.test)}
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

func (k *uctPut) prepare() {
	n := k.p.Size()
	k.data, k.vecs = k.buf[:n], k.pieces(0)
	k.last = newLastByte(k.mem.Bytes(), n)
	k.end = n - 1
	if k.p.Stride > 0 { // the last piece does not fill its slot
		k.end = k.p.Stride*int64(len(k.p.Sizes)-1) + k.p.Sizes[len(k.p.Sizes)-1] - 1
	}
}

func (k *uctPut) active(n int64, st *stamps) error {
	k.prepare()
	if k.test.Pattern == Stream {
		if err := stream(k, n, st, k.link); err != nil {
			return err
		}
		return k.flush()
	}
	if err := k.sendFirst(k.seq + 1); err != nil {
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

func (k *uctPut) passive(n int64) error {
	k.prepare()
	if k.test.Pattern == Stream {
		return nil
	}
	return k.form.echo(n, k.scratch)
}

// reply returns the number of the message that replies to number seq: the initiating side is one
// ahead.
func (k *uctPut) reply() byte {
	if k.ahead() {
		return k.seq + 1
	}
	return k.seq
}

// ahead reports whether this side began the ping-pong.
func (k *uctPut) ahead() bool { return k.link.g.Index() == 0 }

// sendFirst sends message seq outside of the measured loops.
func (k *uctPut) sendFirst(seq byte) error {
	if err := k.drain(0); err != nil {
		return err
	}
	if k.p.Validate {
		fill(k.data, int64(seq))
	}
	k.buf[k.end] = seq
	return k.postOne(k.form.post)
}

// await waits for the next message.
func (k *uctPut) await() error {
	k.seq++
	for !k.last.is(k.seq) {
		if err := k.idle(); err != nil {
			return err
		}
	}
	return nil
}

func (k *uctPut) burst(n int) error            { return k.form.burst(n) }
func (k *uctPut) each(n int, st *stamps) error { return eachOf(k, n, st) }
func (k *uctPut) burstPost(n int) error        { return k.postAll(n, k.limit, k.form.post) }
func (k *uctPut) postShort() uct.Status        { return k.ep.PutShort(k.data, k.addr, k.key) }
func (k *uctPut) postBcopy() uct.Status        { return k.ep.PutBcopy(k.data, k.addr, k.key, 1) }
func (k *uctPut) postZcopy() uct.Status        { return k.ep.PutZcopy(k.vecs, k.addr, k.key, 1) }

//go:noinline
func (k *uctPut) echoShort(n int64, st *stamps) error {
	ep, p, addr, key, last := k.ep, k.data, k.addr, k.key, k.last
	lead := k.reply() - k.seq
	for range n {
		k.seq++
		for !last.is(k.seq) {
			if err := k.idle(); err != nil {
				return err
			}
		}
		p[len(p)-1] = k.seq + lead
		for {
			s := ep.PutShort(p, addr, key)
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

// echoPost is the ping-pong of the forms that may remain in flight, and of all with validation. The
// last byte may become visible before the others, so it waits for them for a short time.
//
//go:noinline
func (k *uctPut) echoPost(n int64, st *stamps) error {
	lead := k.reply() - k.seq
	in := k.mem.Bytes()[:len(k.data)]
	for range n {
		if err := k.await(); err != nil {
			return err
		}
		if k.p.Validate {
			if err := awaitPattern(in, k.seq, k.idle); err != nil {
				return fmt.Errorf("over %s: %w", k.name, err)
			}
		}
		if err := k.sendFirst(k.seq + lead); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}

// awaitPattern waits, with a limit, until in holds message seq.
func awaitPattern(in []byte, seq byte, idle func() error) error {
	body := in[:len(in)-1] // the last byte is the number itself
	for range 1 << 20 {
		if check(body, int64(seq)) < 0 {
			return nil
		}
		if err := idle(); err != nil {
			return err
		}
	}
	at := check(body, int64(seq))
	return fmt.Errorf("message %d is wrong at byte %d: %#x", seq, at, in[at])
}

//go:noinline
func (k *uctPut) burstShort(n int) error {
	ep, p, addr, key := k.ep, k.data, k.addr, k.key
	for range n {
		for {
			s := ep.PutShort(p, addr, key)
			if s == ucs.OK {
				break
			}
			if err := k.retry(s); err != nil {
				return err
			}
		}
	}
	return nil
}
