package rc

import (
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
)

// stock maps the buffers and posts the receives. The first QP causes it: an interface without
// connections has none.
func (f *iface) stock() (err error) {
	if f.reserve != nil {
		return nil
	}
	if f.rx.Mem() == nil {
		if f.rx, err = nic.NewSlab(f.pd, f.target+f.keepMost, f.seg); err != nil {
			f.rx = new(nic.Slab)
			return err
		}
	}
	if f.tx.Mem() == nil {
		if f.tx, err = nic.NewSlab(f.pd, f.txTotal, max(f.seg, headLen+maxHead)); err != nil {
			f.tx = new(nic.Slab)
			return err
		}
	}
	for f.posted < f.target {
		if !f.post() {
			return fmt.Errorf("post %d receives: %w", f.target, ucs.ErrNoResource)
		}
	}
	r, err := f.d.NewReserve(f.srq, f.rx, f.seg, f.target/4)
	if err != nil {
		return err
	}
	f.reserve = r
	f.d.OnRefused(f.srq, f.queuePairRefused)
	f.reserve.Balance(f.batch)
	f.ud.stock(udRecvs)
	return nil
}
