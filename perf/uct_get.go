package perf

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// uctGet is get and get_bw, which differ in their windows.
type uctGet struct {
	*uctSide
	loop  func(n int) error
	data  []byte
	vecs  []uct.Vec
	limit int
}

func newUCTGet(s *uctSide) uctKernel {
	k := &uctGet{uctSide: s, limit: s.p.window(s.test)}
	switch s.p.Layout {
	case Short:
		k.loop = k.burstShort
	case Bcopy:
		k.loop = func(n int) error {
			return k.postAll(n, k.limit, func() uct.Status { return k.ep.GetBcopy(k.data, k.addr, k.key, 1) })
		}
	case Zcopy:
		k.loop = func(n int) error {
			return k.postAll(n, k.limit, func() uct.Status { return k.ep.GetZcopy(k.vecs, k.addr, k.key, 1) })
		}
	}
	return k
}

func (k *uctGet) active(n int64, st *stamps) error {
	k.data, k.vecs = k.buf[:k.p.Size()], k.pieces(0)
	if err := stream(k, n, st, k.link); err != nil {
		return err
	}
	return k.drain(0)
}

func (k *uctGet) passive(int64) error          { return nil }
func (k *uctGet) burst(n int) error            { return k.loop(n) }
func (k *uctGet) each(n int, st *stamps) error { return eachOf(k, n, st) }

//go:noinline
func (k *uctGet) burstShort(n int) error {
	ep, p, addr, key := k.ep, k.data, k.addr, k.key
	for range n {
		for {
			s := ep.GetShort(p, addr, key)
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
