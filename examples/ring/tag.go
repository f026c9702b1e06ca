package main

import (
	"context"
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// byTag receives the next block while it sends the last one on. The tag tells the
// step, so a block that comes early waits for its receive.
func byTag(ctx context.Context, r *ring) error {
	held, next := make([]byte, r.block), make([]byte, r.block)
	for lap := range r.laps {
		fill(held, r.Rank, lap)
		for step := 1; step < r.Size; step++ {
			tag := ucp.Tag(lap*r.Size + step)
			// Tied, so that the wait ends where the left neighbour does.
			recv := r.w.TagRecv(next, tag, ^ucp.Tag(0)).Tie(r.left)
			send := r.right.TagSend(held, tag)
			m, err := recv.Wait(ctx) // drives the worker, the send as well
			if err != nil {
				return err
			}
			if m.Len != r.block {
				return fmt.Errorf("a block of %d bytes", m.Len)
			}
			if err := check(next, r.source(step), lap); err != nil {
				return err
			}
			if err := send.Wait(ctx); err != nil { // held is ours again
				return err
			}
			held, next = next, held
		}
	}
	return nil
}
