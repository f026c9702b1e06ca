package soft

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// FailDevice has an open soft device fail, as hardware does that is removed: what is posted never
// completes, its queue pairs refuse further requests, and the event is verbs.EventDeviceFatal. It
// is for tests of how programs end then, which close the device.
//
// Errors: ucs.ErrUnsupported for other devices.
func FailDevice(c verbs.Context) error {
	d, ok := c.(*device)
	if !ok {
		return fmt.Errorf("fail device %q, which is no soft device: %w", c.Info().Name, ucs.ErrUnsupported)
	}
	var all []*qp
	d.mu.Lock()
	d.qps.each(func(q *qp) { all = append(all, q) })
	d.mu.Unlock()
	for _, q := range all {
		_ = q.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState) // an error means that it is closed
	}
	d.raise(verbs.AsyncEvent{Type: verbs.EventDeviceFatal})
	return nil
}
