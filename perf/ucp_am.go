package perf

import (
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// amMeasured is the ID of the measured messages.
const amMeasured ucp.AMID = 1

// ucpAM is ucp_am_lat and ucp_am_bw. Its handler counts received messages. It first fetches data
// that is sent by rendezvous.
type ucpAM struct {
	*ucpSide
	echo         func(n int64, st *stamps) error // n times: receive one, send one
	header       []byte
	opts         ucp.Opts
	scratch      *stamps
	arrivedUntil *runUntil // until the awaited messages have arrived
	fetched      ucp.NotifyFunc

	got     int64 // received messages
	want    int64 // messages awaited so far
	filled  int64 // messages sent with their pattern
	checked int64 // messages validated
	bad     error // the first validation error
}

func newUCPAM(s *ucpSide) (kernel, error) {
	k := &ucpAM{
		ucpSide: s, header: make([]byte, s.p.amHeader(s.test)), scratch: newScratch(),
	}
	k.arrivedUntil = &runUntil{s.link, func() bool { return k.got >= k.want || k.bad != nil }}
	k.fetched = k.fetchEnds
	k.echo = k.echoPlain
	if s.p.Validate || s.p.Sleep {
		k.echo = k.echoSlow
	}
	if s.p.Registered {
		k.opts.Mem = s.out
	}
	return k, k.w.HandleAM(amMeasured, k.handle)
}

// handle processes a received message.
func (k *ucpAM) handle(m *ucp.AM) {
	if m.Rendezvous {
		k.fetch(m)
		return
	}
	if k.p.AMCopy {
		copy(k.in, m.Data)
	}
	if k.p.Validate {
		k.check(m.Header, m.Data)
	}
	k.got++
}

// fetch fetches the data of a rendezvous message.
func (k *ucpAM) fetch(m *ucp.AM) {
	if k.p.Validate {
		k.checkHeader(m.Header)
	}
	r := m.Retain().RecvInto(k.in)
	if !r.Notify(k.fetched, 0) {
		_, err := r.Wait(k.link) // already complete: does not wait
		k.fetchEnds(ucp.Completion{Err: err})
	}
}

func (k *ucpAM) fetchEnds(c ucp.Completion) {
	if c.Err != nil {
		k.bad = c.Err
		return
	}
	if k.p.Validate {
		k.checkData(k.in)
	}
	k.got++
}

func (k *ucpAM) check(header, data []byte) {
	k.checkHeader(header)
	k.checkData(data)
}

func (k *ucpAM) checkHeader(header []byte) {
	if at := check(header, k.checked); at >= 0 || len(header) != len(k.header) {
		k.bad = fmt.Errorf("message %d is wrong: %d of %d bytes of header, first bad byte %d", k.checked, len(header), len(k.header), at)
	}
}

func (k *ucpAM) checkData(data []byte) {
	if at := check(data, k.checked); at >= 0 || len(data) != len(k.in) {
		k.bad = fmt.Errorf("message %d is wrong: %d of %d bytes, first bad byte %d", k.checked, len(data), len(k.in), at)
	}
	k.checked++
}

func (k *ucpAM) active(n int64, st *stamps) error {
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
	err := k.await(1)
	st.tick()
	return err
}

func (k *ucpAM) passive(n int64) error {
	if k.test.Pattern == Stream {
		return k.await(n)
	}
	return k.echo(n, k.scratch)
}

// send sends one message outside of the measured loops.
func (k *ucpAM) send() error {
	if k.p.Validate {
		fill(k.header, k.filled)
		fill(k.buf, k.filled)
		k.filled++
	}
	return k.wait(k.ep.AMSendWith(amMeasured, k.header, k.buf, k.opts))
}

// await waits for n more messages.
func (k *ucpAM) await(n int64) error {
	k.want += n
	if err := k.awaitUntil(k.arrivedUntil); err != nil {
		return err
	}
	return k.bad
}

//
//hot:bench BenchmarkRun/ucp_am_lat
//go:noinline
func (k *ucpAM) echoPlain(n int64, st *stamps) error {
	ep, header, out := k.ep, k.header, k.buf
	for range n {
		k.want++
		for k.got < k.want {
			if err := k.idle(); err != nil {
				return err
			}
		}
		r := ep.AMSend(amMeasured, header, out)
		st.tick()
		if r != (ucp.Request{}) {
			if err := k.wait(r); err != nil {
				return err
			}
		}
	}
	return k.bad
}

// echoSlow is echoPlain with validation, or for a side that sleeps while it waits.
//
//go:noinline
func (k *ucpAM) echoSlow(n int64, st *stamps) error {
	for range n {
		if err := k.await(1); err != nil {
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
//hot:bench BenchmarkRun/ucp_am_bw
//go:noinline
func (k *ucpAM) burst(n int) error {
	if k.link.g.Size() == 1 || k.p.Registered {
		return k.burstSlow(n)
	}
	ep, header, out := k.ep, k.header, k.buf
	for range n {
		if r := ep.AMSend(amMeasured, header, out); r != (ucp.Request{}) {
			if err := k.enqueue(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// burstSlow is burst with registered memory, or in a single process that receives what it sends.
//
//go:noinline
func (k *ucpAM) burstSlow(n int) error {
	alone := k.link.g.Size() == 1
	for range n {
		if r := k.ep.AMSendWith(amMeasured, k.header, k.buf, k.opts); r != (ucp.Request{}) {
			if err := k.enqueue(r); err != nil {
				return err
			}
		}
		if alone {
			if err := k.await(1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *ucpAM) each(n int, st *stamps) error { return eachOf(k, n, st) }
