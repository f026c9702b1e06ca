package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// amBlock is the handler's number; the header of its messages is the sender's
// rank, 4 bytes.
const amBlock ucp.AMID = 1

// inbox is the state that the handler and byAM share. Both run on the one
// goroutine that drives the worker: the handler within its waits.
type inbox struct {
	in      [][]byte // by sender
	arrived int
	fetches []ucp.RecvRequest // long blocks on their way into in
	err     error
}

// byAM has a handler put each block where it belongs.
func byAM(ctx context.Context, p *process) error {
	box, out := &inbox{in: p.blocks()}, p.blocks()
	if err := p.w.HandleAM(amBlock, box.take); err != nil {
		return err
	}
	// An active message finds its handler at once, so all must have set theirs.
	if err := p.barrier(ctx, 1); err != nil {
		return err
	}
	header := binary.LittleEndian.AppendUint32(nil, uint32(p.Rank))
	sends := make([]ucp.Request, p.Size)
	for turn := range p.turns {
		for i := range sends {
			to := (p.Rank + i) % p.Size // each begins with another one
			fill(out[to], p.Rank, to, turn)
			sends[to] = p.peers[to].AMSend(amBlock, header, out[to])
		}
		if err := box.await(ctx, p); err != nil {
			return err
		}
		for from, b := range box.in {
			if err := p.check(b, from, turn); err != nil {
				return err
			}
		}
		if err := ucp.WaitAll(ctx, sends...); err != nil { // out is ours again
			return err
		}
		if err := p.barrier(ctx, turn+2); err != nil { // all have looked: the next turn may overwrite
			return err
		}
	}
	return nil
}

// take is the handler. m and its slices end with it.
func (b *inbox) take(m *ucp.AM) {
	from := len(b.in)
	if len(m.Header) == 4 {
		from = int(binary.LittleEndian.Uint32(m.Header))
	}
	switch {
	case from >= len(b.in) || m.Len != len(b.in[from]):
		b.err = fmt.Errorf("a message of %d bytes with header %x", m.Len, m.Header)
	case m.Rendezvous: // long data waits at the sender until it is fetched
		b.fetches = append(b.fetches, m.Keep().RecvInto(b.in[from]))
	default:
		copy(b.in[from], m.Data)
	}
	b.arrived++
}

// await waits for everybody's block.
func (b *inbox) await(ctx context.Context, p *process) error {
	err := p.waitUntil(ctx, func() bool { return b.arrived >= p.Size || b.err != nil })
	if err != nil {
		return err
	}
	for _, f := range b.fetches {
		if _, err := f.Wait(ctx); err != nil {
			return err
		}
	}
	b.arrived, b.fetches = 0, b.fetches[:0]
	return b.err
}
