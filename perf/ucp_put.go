package perf

import (
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// ucpPut is ucp_put_lat and ucp_put_bw. Like uctPut it detects a message by its last byte, and the
// receiver of a stream does not poll.
type ucpPut struct {
	*ucpSide
	echo    func(n int64, st *stamps) error // n times: await one, put one
	loop    func(n int) error
	opts    ucp.Opts
	last    lastByte
	scratch *stamps
	arrived func() bool // reports whether the awaited message has arrived
	seq     byte        // number of the last message awaited
	lead    byte        // difference between the number of the next put and seq
}

func newUCPPut(s *ucpSide) kernel {
	k := &ucpPut{ucpSide: s, scratch: newScratch(), last: newLastByte(s.mem.Bytes(), s.p.Size())}
	if s.link.g.Index() == 0 {
		k.lead = 1 // this side begins
	}
	k.echo, k.loop = k.echoPlain, k.burstPlain
	if s.p.Registered {
		k.opts = ucp.Opts{Mem: s.out}
		k.loop = k.burstWith
	}
	k.arrived = func() bool { return k.last.is(k.seq) }
	if s.p.Registered || s.p.Sleep || s.p.Validate {
		k.echo = k.echoSlow
	}
	return k
}

func (k *ucpPut) active(n int64, st *stamps) error {
	if k.test.Pattern == Stream {
		if err := stream(k, n, st, k.link); err != nil {
			return err
		}
		return k.flush()
	}
	if err := k.put(); err != nil {
		return err
	}
	st.restamp()
	if err := k.echo(n-1, st); err != nil {
		return err
	}
	err := k.await()
	st.tick()
	return err
}

func (k *ucpPut) passive(n int64) error {
	if k.test.Pattern == Stream {
		return nil
	}
	return k.echo(n, k.scratch)
}

// put puts one message outside of the measured loops.
func (k *ucpPut) put() error {
	seq := k.seq + k.lead
	if k.p.Validate {
		fill(k.buf, int64(seq))
	}
	k.buf[len(k.buf)-1] = seq
	return k.wait(k.key.PutWith(k.buf, 0, k.opts))
}

// await waits for the next message.
func (k *ucpPut) await() error {
	k.seq++
	if k.p.Sleep { // a memory write wakes no waiter, so it sleeps for short intervals
		return k.w.WaitUntil(k.link, k.arrived)
	}
	for !k.last.is(k.seq) {
		if err := k.idle(); err != nil {
			return err
		}
	}
	return nil
}

// echoSlow is echoPlain with registered memory, with validation, or for a side that sleeps while it
// waits.
//
//go:noinline
func (k *ucpPut) echoSlow(n int64, st *stamps) error {
	in := k.mem.Bytes()[:len(k.buf)]
	for range n {
		if err := k.await(); err != nil {
			return err
		}
		if k.p.Validate {
			if err := awaitPattern(in, k.seq, k.idle); err != nil {
				return fmt.Errorf("%v: %w", k.ep.Info().Peer, err)
			}
		}
		if err := k.put(); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}

func (k *ucpPut) burst(n int) error { return k.loop(n) }

func (k *ucpPut) each(n int, st *stamps) error {
	if k.p.Registered {
		return eachOf(k, n, st)
	}
	return k.eachPlain(n, st)
}

//
//hot:bench BenchmarkRun/ucp_put_lat
//go:noinline
func (k *ucpPut) echoPlain(n int64, st *stamps) error {
	key, p, last := k.key, k.buf, k.last
	for range n {
		k.seq++
		for !last.is(k.seq) {
			if err := k.idle(); err != nil {
				return err
			}
		}
		p[len(p)-1] = k.seq + k.lead
		r := key.Put(p, 0)
		st.tick()
		if r != (ucp.Request{}) {
			if err := k.wait(r); err != nil {
				return err
			}
		}
	}
	return nil
}

//
//hot:bench BenchmarkRun/ucp_put_bw
//go:noinline
func (k *ucpPut) burstPlain(n int) error {
	key, p := k.key, k.buf
	for range n {
		if r := key.Put(p, 0); r != (ucp.Request{}) {
			if err := k.enqueue(r); err != nil {
				return err
			}
		}
	}
	return nil
}

//go:noinline
func (k *ucpPut) burstWith(n int) error {
	key, p, o := k.key, k.buf, k.opts
	for range n {
		if r := key.PutWith(p, 0, o); r != (ucp.Request{}) {
			if err := k.enqueue(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachPlain has the stamp inlined by hand: a call of tickEach costs as much as the put.
//
//hot:bench BenchmarkRun/ucp_put_bw_each
//go:noinline
func (k *ucpPut) eachPlain(n int, st *stamps) error {
	key, p, i, prev := k.key, k.buf, st.n, st.prev
	for range n {
		if r := key.Put(p, 0); r != (ucp.Request{}) {
			if err := k.enqueue(r); err != nil {
				return err
			}
		}
		t := cycles()
		st.ring[i%ringLen] = t - prev
		i++
		prev = t
		if t-st.mark >= st.due {
			st.n, st.prev = i, prev
			st.report()
		}
	}
	st.n, st.prev = i, prev
	return nil
}
