package nic

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/verbs"
)

// Thread is a parent domain whose queues take no locks: one goroutine at a time uses the
// objects in it.
type Thread struct {
	// PD is for queue pairs and shared receive queues, and for CQConfig.Domain.
	PD verbs.PD
	td verbs.TD
}

// NewThread returns a new thread domain and a parent domain in it.
func (d *Domain) NewThread() (*Thread, error) {
	td, err := d.ctx.AllocTD(verbs.TDConfig{})
	if err != nil {
		return nil, fmt.Errorf("thread domain: %w", err)
	}
	pd, err := d.pd.Parent(td)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("parent domain: %w", err), td.Close())
	}
	return &Thread{PD: pd, td: td}, nil
}

// Close frees both. The objects in them must be closed.
func (t *Thread) Close() error { return errors.Join(t.PD.Close(), t.td.Close()) }
