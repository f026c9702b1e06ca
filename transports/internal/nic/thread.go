package nic

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// Thread is a parent domain, for the objects that one goroutine at a time uses. In a thread domain its
// queues take no locks.
type Thread struct {
	// PD is for queue pairs and shared receive queues, and for CQConfig.Domain.
	PD  verbs.PD
	tds []verbs.TD // the first is that of PD; the others are spares
}

// NewThread returns a parent domain as r plans it.
func (d *Domain) NewThread(r uct.Resources) (*Thread, error) {
	t := new(Thread)
	var err error
	for n := 1 + r.Spares; r.Domain != uct.NoDomain && len(t.tds) < n; {
		td, err := d.ctx.AllocTD(verbs.TDConfig{Sharing: sharingOf[r.Domain]})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("thread domain: %w", err), t.Close())
		}
		t.tds = append(t.tds, td)
	}
	var td verbs.TD
	if len(t.tds) > 0 {
		td = t.tds[0]
	}
	if t.PD, err = d.pd.Parent(td); err != nil {
		return nil, errors.Join(fmt.Errorf("parent domain: %w", err), t.Close())
	}
	return t, nil
}

// sharingOf are the values of TDConfig.Sharing.
var sharingOf = [...]int{uct.OwnDomain: 0, uct.ExclusiveDomain: 1, uct.PairedDomain: 2}

// Close frees all. The objects in them must be closed.
func (t *Thread) Close() error {
	var errs []error
	if t.PD != nil {
		errs = append(errs, t.PD.Close())
	}
	for _, td := range t.tds {
		errs = append(errs, td.Close())
	}
	return errors.Join(errs...)
}
