package perf

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// uctAtomic is add_lat, add_mr, fadd, swap and cswap.
type uctAtomic struct {
	*uctSide
	loop    func(n int) error
	echo    func(n int64, st *stamps) error
	post    func() uct.Status
	op      uct.AtomicOp
	word    *atomic.Uint64 // local memory, which the other side increments
	half    *atomic.Uint32
	scratch *stamps
	seen    uint64 // messages awaited
	limit   int
}

func newUCTAtomic(s *uctSide) uctKernel {
	k := &uctAtomic{uctSide: s, scratch: newScratch(), op: s.test.Op.uct(), limit: s.p.window(s.test)}
	wide := s.p.Size() == 8
	switch {
	case s.test.Op == OpAdd && wide:
		k.loop, k.echo, k.post = k.burstAdd64, k.echo64, k.add64
	case s.test.Op == OpAdd:
		k.loop, k.echo, k.post = k.burstAdd32, k.echo32, k.add32
	case wide:
		k.loop = k.burstFetch64
	default:
		k.loop = k.burstFetch32
	}
	return k
}

func (k *uctAtomic) prepare() { k.word, k.half = word64(k.mem.Bytes(), 0), word32(k.mem.Bytes(), 0) }

func (k *uctAtomic) active(n int64, st *stamps) error {
	k.prepare()
	if k.test.Pattern != PingPong {
		if err := stream(k, n, st, k.link); err != nil {
			return err
		}
		return k.flush()
	}
	for s := k.post(); s != ucs.OK; s = k.post() {
		if err := k.retry(s); err != nil {
			return err
		}
	}
	st.restamp()
	if err := k.echo(n-1, st); err != nil {
		return err
	}
	k.seen++
	for !k.arrived() {
		if err := k.idle(); err != nil {
			return err
		}
	}
	st.tick()
	return nil
}

// arrived reports whether the other side has incremented the word to the awaited value.
func (k *uctAtomic) arrived() bool {
	if k.p.Size() == 4 {
		return k.half.Load() == uint32(k.seen)
	}
	return k.word.Load() == k.seen
}

func (k *uctAtomic) passive(n int64) error {
	k.prepare()
	if k.test.Pattern != PingPong {
		return nil
	}
	return k.echo(n, k.scratch)
}

func (k *uctAtomic) burst(n int) error            { return k.loop(n) }
func (k *uctAtomic) each(n int, st *stamps) error { return eachOf(k, n, st) }
func (k *uctAtomic) add64() uct.Status            { return k.ep.Atomic64(uct.AtomicAdd, 1, k.addr, k.key) }

func (k *uctAtomic) add32() uct.Status { return k.ep.Atomic32(uct.AtomicAdd, 1, k.addr, k.key) }

//go:noinline
func (k *uctAtomic) echo64(n int64, st *stamps) error {
	ep, addr, key, word := k.ep, k.addr, k.key, k.word
	for range n {
		k.seen++
		for word.Load() != k.seen {
			if err := k.idle(); err != nil {
				return err
			}
		}
		for {
			s := ep.Atomic64(uct.AtomicAdd, 1, addr, key)
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

//go:noinline
func (k *uctAtomic) echo32(n int64, st *stamps) error {
	ep, addr, key, word := k.ep, k.addr, k.key, k.half
	for range n {
		k.seen++
		for word.Load() != uint32(k.seen) {
			if err := k.idle(); err != nil {
				return err
			}
		}
		for {
			s := ep.Atomic32(uct.AtomicAdd, 1, addr, key)
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

//go:noinline
func (k *uctAtomic) burstAdd64(n int) error {
	ep, addr, key := k.ep, k.addr, k.key
	for range n {
		for {
			s := ep.Atomic64(uct.AtomicAdd, 1, addr, key)
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

//go:noinline
func (k *uctAtomic) burstAdd32(n int) error {
	ep, addr, key := k.ep, k.addr, k.key
	for range n {
		for {
			s := ep.Atomic32(uct.AtomicAdd, 1, addr, key)
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

//go:noinline
func (k *uctAtomic) burstFetch64(n int) error {
	ep, op, addr, key := k.ep, k.op, k.addr, k.key
	for range n {
		for {
			_, s := ep.Fetch64(op, 1, 0, addr, key, 1)
			if s == ucs.OK {
				break
			}
			if s == ucs.InProgress {
				k.inFlight++
				if err := k.drain(k.limit - 1); err != nil {
					return err
				}
				break
			}
			if err := k.retry(s); err != nil {
				return err
			}
		}
	}
	return nil
}

//go:noinline
func (k *uctAtomic) burstFetch32(n int) error {
	ep, op, addr, key := k.ep, k.op, k.addr, k.key
	for range n {
		for {
			_, s := ep.Fetch32(op, 1, 0, addr, key, 1)
			if s == ucs.OK {
				break
			}
			if s == ucs.InProgress {
				k.inFlight++
				if err := k.drain(k.limit - 1); err != nil {
					return err
				}
				break
			}
			if err := k.retry(s); err != nil {
				return err
			}
		}
	}
	return nil
}
