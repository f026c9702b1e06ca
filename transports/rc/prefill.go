package rc

import (
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
)

// prefill maps the buffers and posts the receives. The first QP causes it: an interface without
// connections has none.
func (f *iface) prefill() (err error) {
	if f.reserve != nil {
		return nil
	}
	if f.rx.Mem() == nil {
		if f.rx, err = nic.NewSlab(f.pd, f.recvTarget+f.maxRetained, f.seg); err != nil {
			f.rx = new(nic.Slab)
			return err
		}
	}
	if f.tx.Mem() == nil {
		if f.tx, err = nic.NewSlab(f.pd, f.txTotal, max(f.seg, headerLen+maxHeader)); err != nil {
			f.tx = new(nic.Slab)
			return err
		}
	}
	for f.postedRecvs < f.recvTarget {
		if !f.postRecvs() {
			return fmt.Errorf("post %d receives: %w", f.recvTarget, ucs.ErrNoResource)
		}
	}
	r, err := f.d.NewReserve(f.srq, f.rx, f.seg, f.recvTarget/4)
	if err != nil {
		return err
	}
	f.reserve = r
	f.d.OnQPError(f.srq, f.onQPError)
	f.reserve.Balance(f.refillSize)
	f.ud.prefill(udRecvs)
	return nil
}
