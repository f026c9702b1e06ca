package ucp

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// The operations of a stalledEndpoint return NoResource until it is open.

func (h *stalledEndpoint) AMShort(id uct.AMID, hdr uint64, p []byte) uct.Status {
	if h.resuming {
		return h.Endpoint.AMShort(id, hdr, p)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) AMUint64(id uct.AMID, hdr, v uint64) uct.Status {
	if h.resuming {
		return h.Endpoint.AMUint64(id, hdr, v)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) AMZcopy(id uct.AMID, hdr uint64, head []byte, v []uct.Vec, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.AMZcopy(id, hdr, head, v, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) ReserveAM(id uct.AMID, hdr uint64, n int) ([]byte, uct.Status) {
	if h.resuming {
		return h.Endpoint.ReserveAM(id, hdr, n)
	}
	return nil, ucs.NoResource
}

func (h *stalledEndpoint) PutShort(p []byte, addr uint64, k uct.RKey) uct.Status {
	if h.resuming {
		return h.Endpoint.PutShort(p, addr, k)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) PutUint64(v, addr uint64, k uct.RKey) uct.Status {
	if h.resuming {
		return h.Endpoint.PutUint64(v, addr, k)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) PutBcopy(p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.PutBcopy(p, addr, k, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) PutZcopy(v []uct.Vec, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.PutZcopy(v, addr, k, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) GetShort(p []byte, addr uint64, k uct.RKey) uct.Status {
	if h.resuming {
		return h.Endpoint.GetShort(p, addr, k)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) GetUint64(addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status) {
	if h.resuming {
		return h.Endpoint.GetUint64(addr, k, t)
	}
	return 0, ucs.NoResource
}

func (h *stalledEndpoint) GetBcopy(p []byte, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.GetBcopy(p, addr, k, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) GetZcopy(v []uct.Vec, addr uint64, k uct.RKey, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.GetZcopy(v, addr, k, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) Atomic32(op uct.AtomicOp, v uint32, addr uint64, k uct.RKey) uct.Status {
	if h.resuming {
		return h.Endpoint.Atomic32(op, v, addr, k)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) Atomic64(op uct.AtomicOp, v, addr uint64, k uct.RKey) uct.Status {
	if h.resuming {
		return h.Endpoint.Atomic64(op, v, addr, k)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) Fetch32(op uct.AtomicOp, v, cmp uint32, addr uint64, k uct.RKey, t uct.Token) (uint32, uct.Status) {
	if h.resuming {
		return h.Endpoint.Fetch32(op, v, cmp, addr, k, t)
	}
	return 0, ucs.NoResource
}

func (h *stalledEndpoint) Fetch64(op uct.AtomicOp, v, cmp, addr uint64, k uct.RKey, t uct.Token) (uint64, uct.Status) {
	if h.resuming {
		return h.Endpoint.Fetch64(op, v, cmp, addr, k, t)
	}
	return 0, ucs.NoResource
}

func (h *stalledEndpoint) Flush(k uct.FlushKind, t uct.Token) uct.Status {
	if h.resuming {
		return h.Endpoint.Flush(k, t)
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) Fence() uct.Status {
	if h.resuming {
		return h.Endpoint.Fence()
	}
	return ucs.NoResource
}

func (h *stalledEndpoint) PendingAdd(t uct.Token) uct.Status {
	h.pending = append(h.pending, t)
	return ucs.OK
}

func (h *stalledEndpoint) PendingPurge(f func(uct.Token)) {
	h.Endpoint.PendingPurge(f)
	ts := h.pending
	h.pending, h.numOlder = nil, 0
	for _, t := range ts {
		f(t)
	}
}
