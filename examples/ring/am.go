package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// amBlock is the ID of the handler. The header of its messages is the lap and the step, 4 bytes
// each.
const amBlock ucp.AMID = 1

// passing is the state that the handler and byAM share. Both run on the goroutine that drives the
// worker: the handler runs within its waits.
type passing struct {
	*ring
	in      []byte            // buffer for the next block
	lap     int               // the current lap of this process
	step    int               // of the awaited block
	arrived bool              // the awaited block is in in
	fetch   []ucp.RecvRequest // a long block being fetched into in
	err     error
}

// byAM sends the blocks as active messages. A block is sent only after the receiver has sent a
// credit: the handler runs at once, whether the receiver has a free buffer or not.
func byAM(ctx context.Context, r *ring) error {
	const amCredit = amBlock + 1
	p := &passing{ring: r, in: make([]byte, r.block)}
	credits := 0
	if err := r.w.HandleAM(amBlock, p.take); err != nil {
		return err
	}
	if err := r.w.HandleAM(amCredit, func(*ucp.AM) { credits++ }); err != nil {
		return err
	}
	held := make([]byte, r.block)
	for lap := range r.laps {
		fill(held, r.Rank, lap)
		for step := 1; step < r.Size; step++ {
			p.lap, p.step, p.arrived = lap, step, false
			r.left.AMSend(amCredit, nil, nil) // in is free
			if err := r.waitUntil(ctx, func() bool { return credits > 0 }); err != nil {
				return err
			}
			credits--
			header := binary.LittleEndian.AppendUint32(nil, uint32(lap))
			header = binary.LittleEndian.AppendUint32(header, uint32(step))
			send := r.right.AMSend(amBlock, header, held)
			if err := p.await(ctx); err != nil {
				return err
			}
			if err := check(p.in, r.source(step), lap); err != nil {
				return err
			}
			if err := send.Wait(ctx); err != nil { // held may be reused
				return err
			}
			held, p.in = p.in, held
		}
	}
	return nil
}

// take is the handler. m and its slices are valid until it returns.
func (p *passing) take(m *ucp.AM) {
	if len(m.Header) != 8 || m.Len != p.block {
		p.err = fmt.Errorf("a message with a header of %d bytes and %d bytes of data", len(m.Header), m.Len)
		return
	}
	lap, step := binary.LittleEndian.Uint32(m.Header), binary.LittleEndian.Uint32(m.Header[4:])
	switch {
	case int(lap) != p.lap || int(step) != p.step || p.arrived:
		p.err = fmt.Errorf("lap %d, step %d where lap %d, step %d was due", lap, step, p.lap, p.step)
	case m.Rendezvous: // long data remains at the sender until it is fetched
		p.fetch = append(p.fetch, m.Retain().RecvInto(p.in))
	default:
		copy(p.in, m.Data)
		p.arrived = true
	}
}

// await waits for the block and its data.
func (p *passing) await(ctx context.Context) error {
	err := p.waitUntil(ctx, func() bool { return p.arrived || len(p.fetch) > 0 || p.err != nil })
	if err != nil || p.err != nil {
		return errors.Join(err, p.err)
	}
	for _, f := range p.fetch {
		if _, err := f.Wait(ctx); err != nil {
			return err
		}
	}
	p.fetch = p.fetch[:0]
	return nil
}
