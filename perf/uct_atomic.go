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
		k.loop, k.echo, k.post = k.burstPost, k.echoPost, k.add32
	case wide:
		k.loop, k.post = k.burstPost, k.fetch64
	default:
		k.loop, k.post = k.burstPost, k.fetch32
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
	if err := k.postOne(k.post); err != nil {
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

// await waits until the other side has incremented the word once more.
func (k *uctAtomic) await() error {
	k.seen++
	for k.p.Size() == 4 && k.half.Load() != uint32(k.seen) || k.p.Size() != 4 && k.word.Load() != k.seen {
		if err := k.idle(); err != nil {
			return err
		}
	}
	return nil
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

func (k *uctAtomic) add32() uct.Status     { return k.ep.Atomic32(uct.AtomicAdd, 1, k.addr, k.key) }
func (k *uctAtomic) burstPost(n int) error { return k.postAll(n, k.limit, k.post) }

func (k *uctAtomic) fetch64() uct.Status {
	_, st := k.ep.Fetch64(k.op, 1, 0, k.addr, k.key, 1)
	return st
}

func (k *uctAtomic) fetch32() uct.Status {
	_, st := k.ep.Fetch32(k.op, 1, 0, k.addr, k.key, 1)
	return st
}

// echoPost is the ping-pong of 32-bit words.
func (k *uctAtomic) echoPost(n int64, st *stamps) error {
	for range n {
		if err := k.await(); err != nil {
			return err
		}
		if err := k.postOne(k.post); err != nil {
			return err
		}
		st.tick()
	}
	return nil
}

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
