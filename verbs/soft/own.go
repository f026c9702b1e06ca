package soft

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// owned is an object of a device that a program passes back to create other objects.
type owned interface {
	comparable
	madeBy() *device
}

func (c *cq) madeBy() *device           { return c.d }
func (s *srq) madeBy() *device          { return s.d }
func (ch *compChannel) madeBy() *device { return ch.d }
func (t *td) madeBy() *device           { return t.d }
func (p *pd) madeBy() *device           { return p.d }

// ownObject converts v to an object of the device. name is its role in error texts.
func ownObject[T owned](d *device, name string, v any) (T, error) {
	var none T
	if v == nil {
		return none, fmt.Errorf("no %s: %w", name, ucs.ErrInvalid)
	}
	o, ok := v.(T)
	if !ok || o == none {
		return none, fmt.Errorf("%s %T of another provider: %w", name, v, ucs.ErrInvalid)
	}
	if o.madeBy() != d {
		return none, fmt.Errorf("%s of another device: %w", name, ucs.ErrInvalid)
	}
	return o, nil
}

// ownObjectOrNil is own for an optional object: nil stays nil.
func ownObjectOrNil[T owned](d *device, name string, v any) (T, error) {
	if v == nil {
		var none T
		return none, nil
	}
	return ownObject[T](d, name, v)
}
