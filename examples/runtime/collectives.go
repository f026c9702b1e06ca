package main

import (
	"context"
	"encoding/binary"

	"github.com/goucx/goucx/ucp"
)

// collSend and collRecv are one message of a collective.
func (c *comm) collSend(p []byte, to, number int) ucp.Request {
	return c.peers[c.ranks[to]].TagSend(p, c.tag(kindCollective, number, c.me))
}

func (c *comm) collRecv(p []byte, from, number int) ucp.RecvRequest {
	return c.w.TagRecv(p, c.tag(kindCollective, number, from), exact).Tie(c.peers[c.ranks[from]])
}

// next returns the number of the next collective. All members begin them in the same order.
func (c *comm) next() int {
	c.counter++
	return c.counter
}

// barrier returns when all members have entered it. In each step a member sends to one that is
// twice as far away as in the last.
func (c *comm) barrier(ctx context.Context) error {
	n, size := c.next(), len(c.ranks)
	for far := 1; far < size; far *= 2 {
		recv := c.collRecv(nil, (c.me-far+size)%size, n)
		send := c.collSend(nil, (c.me+far)%size, n)
		if err := ucp.WaitAll(ctx, []ucp.AnyRequest{recv.Any(), send.Any()}, nil); err != nil {
			return err
		}
	}
	return nil
}

// broadcast copies p of the root to p of all, along a binomial tree.
func (c *comm) broadcast(ctx context.Context, p []byte, root int) error {
	n, size := c.next(), len(c.ranks)
	place := (c.me - root + size) % size // the root's is 0
	far := 1
	for ; far < size; far *= 2 {
		if place&far != 0 {
			if _, err := c.collRecv(p, (c.me-far+size)%size, n).Wait(ctx); err != nil {
				return err
			}
			break
		}
	}
	var sends []ucp.Request
	for far /= 2; far > 0; far /= 2 {
		if place+far < size {
			sends = append(sends, c.collSend(p, (c.me+far)%size, n))
		}
	}
	return ucp.WaitAll(ctx, sends, nil)
}

// allreduce replaces words by their sums over all members: up a binomial tree to member 0, and
// down again.
func (c *comm) allreduce(ctx context.Context, words []uint64) error {
	n, size := c.next(), len(c.ranks)
	buf := make([]byte, 8*len(words))
	for far := 1; far < size; far *= 2 {
		if c.me&far != 0 {
			encode(buf, words)
			if err := c.collSend(buf, c.me-far, n).Wait(ctx); err != nil {
				return err
			}
			break
		}
		if c.me+far < size {
			if _, err := c.collRecv(buf, c.me+far, n).Wait(ctx); err != nil {
				return err
			}
			for i := range words {
				words[i] += binary.LittleEndian.Uint64(buf[8*i:])
			}
		}
	}
	encode(buf, words)
	if err := c.broadcast(ctx, buf, 0); err != nil {
		return err
	}
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(buf[8*i:])
	}
	return nil
}

func encode(buf []byte, words []uint64) {
	for i, v := range words {
		binary.LittleEndian.PutUint64(buf[8*i:], v)
	}
}

// alltoall sends out[i] to member i and receives in[i] of it. It calls arrived for each block
// at once when it is there, in any order.
func (c *comm) alltoall(ctx context.Context, out, in [][]byte, arrived func(from, n int) error) error {
	n, size := c.next(), len(c.ranks)
	rs := make([]ucp.AnyRequest, 2*size) // receives, then sends
	for from := range size {
		rs[from] = c.collRecv(in[from], from, n).Any()
	}
	for i := range size {
		to := (c.me + i) % size // each begins with another member
		rs[size+to] = c.collSend(out[to], to, n).Any()
	}
	for {
		r, err := ucp.WaitAny(ctx, rs)
		if err != nil || r.Index < 0 {
			return err
		}
		if r.Index < size {
			if err := arrived(r.Index, r.Len); err != nil {
				return err
			}
		}
	}
}
