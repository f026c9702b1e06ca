package perf

import "github.com/goucx/goucx/ucp"

// ucpGet is ucp_get.
type ucpGet struct {
	*ucpSide
	loop func(n int) error
	opts ucp.Opts
}

func newUCPGet(s *ucpSide) kernel {
	k := &ucpGet{ucpSide: s}
	k.loop = k.burstPlain
	if s.p.Registered {
		k.opts = ucp.Opts{Mem: s.out}
		k.loop = k.burstWith
	}
	return k
}

func (k *ucpGet) active(n int64, st *stamps) error {
	if err := stream(k, n, st, k.link); err != nil {
		return err
	}
	return k.drain()
}

func (k *ucpGet) passive(int64) error { return nil }
func (k *ucpGet) burst(n int) error   { return k.loop(n) }

func (k *ucpGet) each(n int, st *stamps) error {
	if k.p.Registered {
		return eachOf(k, n, st)
	}
	return k.eachPlain(n, st)
}

//
//hot:bench BenchmarkRun/ucp_get
//go:noinline
func (k *ucpGet) burstPlain(n int) error {
	key, p := k.key, k.buf
	for range n {
		if r := key.Get(p, 0); r != (ucp.Request{}) {
			if err := k.enqueue(r); err != nil {
				return err
			}
		}
	}
	return nil
}

//go:noinline
func (k *ucpGet) burstWith(n int) error {
	key, p, o := k.key, k.buf, k.opts
	for range n {
		if r := key.GetWith(p, 0, o); r != (ucp.Request{}) {
			if err := k.enqueue(r); err != nil {
				return err
			}
		}
	}
	return nil
}

//
//hot:bench BenchmarkRun/ucp_get_each
//go:noinline
func (k *ucpGet) eachPlain(n int, st *stamps) error {
	key, p, i, prev := k.key, k.buf, st.n, st.prev
	for range n {
		if r := key.Get(p, 0); r != (ucp.Request{}) {
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
