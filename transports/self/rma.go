package self

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// opsRMA are the one-sided operations of the iface.
const opsRMA uct.Ops = 0

// Register answers ErrUnsupported.
func (d *domain) Register([]byte, uct.MemFlags) (uct.Mem, error) { return nil, ucs.ErrUnsupported }

// Allocate answers ErrUnsupported.
func (d *domain) Allocate(int, uct.MemFlags) (uct.Mem, error) { return nil, ucs.ErrUnsupported }

// UnpackKey answers ErrUnsupported.
func (d *domain) UnpackKey([]byte) (uct.RKey, error) { return 0, ucs.ErrUnsupported }

// KeyAttr is empty.
func (d *domain) KeyAttr(uct.RKey) uct.KeyAttr { return uct.KeyAttr{} }

// ReleaseKey does nothing.
func (d *domain) ReleaseKey(uct.RKey) {}

// Attr: see uct.Domain.
func (d *domain) Attr() *uct.DomainAttr { return &uct.DomainAttr{} }

// Close: see uct.Domain.
func (d *domain) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ifaces > 0 {
		return ucs.ErrBusy
	}
	return nil
}

func (e *endpoint) PutShort([]byte, uint64, uct.RKey) uct.Status  { return ucs.Unsupported }
func (e *endpoint) PutUint64(uint64, uint64, uct.RKey) uct.Status { return ucs.Unsupported }
func (e *endpoint) PutBcopy([]byte, uint64, uct.RKey, uct.Token) uct.Status {
	return ucs.Unsupported
}
func (e *endpoint) PutZcopy([]uct.Vec, uint64, uct.RKey, uct.Token) uct.Status {
	return ucs.Unsupported
}
func (e *endpoint) GetShort([]byte, uint64, uct.RKey) uct.Status { return ucs.Unsupported }
func (e *endpoint) GetUint64(uint64, uct.RKey, uct.Token) (uint64, uct.Status) {
	return 0, ucs.Unsupported
}
func (e *endpoint) GetBcopy([]byte, uint64, uct.RKey, uct.Token) uct.Status {
	return ucs.Unsupported
}
func (e *endpoint) GetZcopy([]uct.Vec, uint64, uct.RKey, uct.Token) uct.Status {
	return ucs.Unsupported
}
func (e *endpoint) Atomic32(uct.AtomicOp, uint32, uint64, uct.RKey) uct.Status {
	return ucs.Unsupported
}
func (e *endpoint) Atomic64(uct.AtomicOp, uint64, uint64, uct.RKey) uct.Status {
	return ucs.Unsupported
}
func (e *endpoint) Fetch32(uct.AtomicOp, uint32, uint32, uint64, uct.RKey, uct.Token) (uint32, uct.Status) {
	return 0, ucs.Unsupported
}
func (e *endpoint) Fetch64(uct.AtomicOp, uint64, uint64, uint64, uct.RKey, uct.Token) (uint64, uct.Status) {
	return 0, ucs.Unsupported
}
