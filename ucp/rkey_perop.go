package ucp

import (
	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Two settings switch off, for comparison, what goucx otherwise does once or not at all.
// With RKEY_PRERESOLVE=n each operation resolves its remote key. With IDLE_SKIP=n each pass
// progresses all ifaces.
var (
	rowKeyResolve = config.New("RKEY_PRERESOLVE", "y", config.Bool(), "",
		"Find the lane and the transport's key of a remote key once, when it is unpacked. n: at each operation, for comparison.")
	rowIdleSkip = config.New("IDLE_SKIP", "y", config.Bool(), "",
		"Progress passes leave out interfaces without active endpoints. n: they call all, for comparison.").
		Alias("ADAPTIVE_PROGRESS")
)

// perOpEndpoint is the operations table of a key with per-operation rkey resolution. It is
// chosen when the key is unpacked. Each operation searches the endpoint's lanes, in the
// order of preference, and the unpacked transport keys. If it finds none it returns
// NoResource, and the slow path finds the reason.
//
// Source: RKEY_RESOLVE_RMA of "UCX over InfiniBand", which the paper removes from an
// operation's path.
type perOpEndpoint struct {
	uct.Endpoint // of the lane found when the key was unpacked; for operations without a fast path
	k            *RemoteKey
	candidates   []*keyLane
}

// perOp returns the operations table of l, which is one of k's lanes.
func (k *RemoteKey) perOp(l *keyLane) uct.Endpoint {
	return &perOpEndpoint{Endpoint: k.t.lanes[l.lane].ep, k: k, candidates: k.lanes()}
}

// resolve returns the endpoint and the transport key of the best lane for an operation. The
// operation needs the access right need and one of ops. If ops is 0 it is a 64-bit atomic.
func (e *perOpEndpoint) resolve(need uct.MemFlags, ops uct.Ops) (uct.Endpoint, uct.RKey, bool) {
	w := e.k.t
	slot := w.endpoint(e.k.e)
	if slot == 0 || e.k.access&need == 0 {
		return nil, 0, false
	}
	peer, lanes := w.eps[slot].peer, w.lanes
	for _, c := range e.candidates {
		if c.emulOnly || ops != 0 && c.attr.Ops&c.iface.Ops&ops == 0 || ops == 0 && c.attr.Atomic64 == 0 {
			continue
		}
		i := w.laneOf.find(lanes, peer, uint32(c.local))
		if i == 0 || lanes[i].state == laneFailed {
			continue
		}
		return lanes[i].ep, c.rkey, true
	}
	return nil, 0, false
}

func (e *perOpEndpoint) PutShort(p []byte, addr uint64, _ uct.RKey) uct.Status {
	ep, k, ok := e.resolve(uct.MemRemotePut, uct.OpPutShort)
	if !ok {
		return ucs.NoResource
	}
	return ep.PutShort(p, addr, k)
}

func (e *perOpEndpoint) PutUint64(v, addr uint64, _ uct.RKey) uct.Status {
	ep, k, ok := e.resolve(uct.MemRemotePut, uct.OpPutShort)
	if !ok {
		return ucs.NoResource
	}
	return ep.PutUint64(v, addr, k)
}

func (e *perOpEndpoint) GetShort(p []byte, addr uint64, _ uct.RKey) uct.Status {
	ep, k, ok := e.resolve(uct.MemRemoteGet, uct.OpGetShort)
	if !ok {
		return ucs.NoResource
	}
	return ep.GetShort(p, addr, k)
}

func (e *perOpEndpoint) GetUint64(addr uint64, _ uct.RKey, t uct.Token) (uint64, uct.Status) {
	ep, k, ok := e.resolve(uct.MemRemoteGet, uct.OpGetShort)
	if !ok {
		return 0, ucs.NoResource
	}
	return ep.GetUint64(addr, k, t)
}

func (e *perOpEndpoint) Atomic64(op uct.AtomicOp, v, addr uint64, _ uct.RKey) uct.Status {
	ep, k, ok := e.resolve(uct.MemRemoteAtomic, 0)
	if !ok {
		return ucs.NoResource
	}
	return ep.Atomic64(op, v, addr, k)
}

func (e *perOpEndpoint) Fetch64(op uct.AtomicOp, v, cmp, addr uint64, _ uct.RKey, t uct.Token) (uint64, uct.Status) {
	ep, k, ok := e.resolve(uct.MemRemoteAtomic, 0)
	if !ok {
		return 0, ucs.NoResource
	}
	return ep.Fetch64(op, v, cmp, addr, k, t)
}
