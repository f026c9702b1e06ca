package soft

import "github.com/goucx/goucx/verbs"

// ringDoorbell rings the doorbell of q's uUAR for the n posted work requests that end with w.
// The caller holds the posters' lock, if there is one. It takes the lock of a shared uUAR
// inside of it, as mlx5 does.
//
// BlueFlame writes a single work request with the doorbell, so the adapter does not fetch
// it. With a DoorBell it fetches all.
//
// Source: mlx5_post_send of rdma-core providers/mlx5/qp.c, with MLX5_POST_SEND_PREFER_BF at
// its default.
//
//hot:bench BenchmarkAdapter
func (q *qp) ringDoorbell(w *wqe, n int) {
	u := q.uuar
	if u.class == mediumLatency {
		u.lock.lock()
		u.locks++
	}
	if n == 1 && u.blueFlame && q.fitsBlueFlame(w) {
		count(&q.sq.counts.blueFlames, 1)
	} else {
		count(&q.sq.counts.doorbells, 1)
	}
	if u.class == mediumLatency {
		u.lock.unlock()
	}
}

// fitsBlueFlame reports whether w's WQE has a length that mlx5 writes by BlueFlame: more
// than a control segment, and no more than half of a uUAR.
func (q *qp) fitsBlueFlame(w *wqe) bool {
	const segment, buffer, inlineHeader, addressVector = 16, 256, 4, 48
	n := uint32(wqeBytes[w.op&15])
	if q.typ == verbs.UD {
		n += addressVector
	}
	switch {
	case w.flags&verbs.SendInline == 0:
		for i := range w.nsg {
			if w.sg[i].Len > 0 {
				n += segment
			}
		}
	case w.n > 0:
		n += (inlineHeader + w.n + segment - 1) &^ (segment - 1)
	}
	return n > segment && n <= buffer
}

// wqeBytes are the bytes of mlx5's WQEs by opcode, without data: a control segment of 16
// bytes; for RDMA a remote address, for atomics their operands, for local operations the
// segments of a UMR.
var wqeBytes = [16]uint8{
	verbs.OpSend: 16, verbs.OpSendImm: 16, verbs.OpSendInv: 16,
	verbs.OpWrite: 32, verbs.OpWriteImm: 32, verbs.OpRead: 32,
	verbs.OpCompareSwap: 48, verbs.OpFetchAdd: 48,
	verbs.OpLocalInv: 128, verbs.OpBindMW: 192,
}
