package main

import (
	"context"
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// byTag posts all receives, then all sends, then waits for them. A tag contains sender and turn.
func byTag(ctx context.Context, p *process) error {
	in, out := p.blocks(), p.blocks()
	recvs, sends := make([]ucp.RecvRequest, p.Size), make([]ucp.Request, p.Size)
	for turn := range p.turns {
		tag := func(from int) ucp.Tag { return ucp.Tag(turn)<<32 | ucp.Tag(from) }
		for from := range recvs {
			recvs[from] = p.w.TagRecv(in[from], tag(from), ^ucp.Tag(0)).Tie(p.peers[from])
		}
		for i := range sends {
			to := (p.Rank + i) % p.Size // each process begins with another peer
			fill(out[to], p.Rank, to, turn)
			sends[to] = p.peers[to].TagSend(out[to], tag(p.Rank))
		}
		for from, recv := range recvs {
			m, err := recv.Wait(ctx)
			if err != nil {
				return fmt.Errorf("receive from rank %d: %w", from, err)
			}
			if err := p.check(in[from][:m.Len], from, turn); err != nil || m.Len != p.block {
				return fmt.Errorf("%d bytes from rank %d: %w", m.Len, from, err)
			}
		}
		if err := ucp.WaitAll(ctx, sends, nil); err != nil { // out may be reused
			return err
		}
	}
	return nil
}
