package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// amBlock is the ID of the handler. The header of its messages is the sender's rank, 4 bytes.
const amBlock ucp.AMID = 1

// inbox is the state that the handler and byAM share. Both run on the goroutine that drives the
// worker: the handler runs within its waits.
type inbox struct {
	in      [][]byte // by sender
	arrived int
	fetches []ucp.RecvRequest // long blocks being fetched into in
	err     error
}

// byAM sends the blocks as active messages; a handler stores each received block.
func byAM(ctx context.Context, p *process) error {
	box, out := &inbox{in: p.blocks()}, p.blocks()
	if err := p.w.HandleAM(amBlock, box.take); err != nil {
		return err
	}
	// An active message needs its handler at once, so all processes must have registered it.
	if err := p.barrier(ctx, 1); err != nil {
		return err
	}
	header := binary.LittleEndian.AppendUint32(nil, uint32(p.Rank))
	sends := make([]ucp.Request, p.Size)
	for turn := range p.turns {
		for i := range sends {
			to := (p.Rank + i) % p.Size // each process begins with another peer
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
		if err := ucp.WaitAll(ctx, sends, nil); err != nil { // out may be reused
			return err
		}
		if err := p.barrier(ctx, turn+2); err != nil { // all have checked: the next turn may overwrite
			return err
		}
	}
	return nil
}

// take is the handler. m and its slices are valid until it returns.
func (b *inbox) take(m *ucp.AM) {
	from := len(b.in)
	if len(m.Header) == 4 {
		from = int(binary.LittleEndian.Uint32(m.Header))
	}
	switch {
	case from >= len(b.in) || m.Len != len(b.in[from]):
		b.err = fmt.Errorf("a message of %d bytes with header %x", m.Len, m.Header)
	case m.Rendezvous: // long data remains at the sender until it is fetched
		b.fetches = append(b.fetches, m.Retain().RecvInto(b.in[from]))
	default:
		copy(b.in[from], m.Data)
	}
	b.arrived++
}

// await waits for the blocks of all processes.
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
