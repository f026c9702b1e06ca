package main

import (
	"context"
	"fmt"

	"github.com/goucx/goucx/ucp"
)

// byTag receives the next block while it sends the last one. The tag contains the step, so a block
// that arrives early waits for its receive.
func byTag(ctx context.Context, r *ring) error {
	held, next := make([]byte, r.block), make([]byte, r.block)
	for lap := range r.laps {
		fill(held, r.Rank, lap)
		for step := 1; step < r.Size; step++ {
			tag := ucp.Tag(lap*r.Size + step)
			// Tied, so that the wait ends if the left neighbor fails.
			recv := r.w.TagRecv(next, tag, ^ucp.Tag(0)).Tie(r.left)
			send := r.right.TagSend(held, tag)
			m, err := recv.Wait(ctx) // drives the worker, and thereby the send
			if err != nil {
				return err
			}
			if m.Len != r.block {
				return fmt.Errorf("a block of %d bytes", m.Len)
			}
			if err := check(next, r.source(step), lap); err != nil {
				return err
			}
			if err := send.Wait(ctx); err != nil { // held may be reused
				return err
			}
			held, next = next, held
		}
	}
	return nil
}
