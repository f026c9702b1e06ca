package ucp

import (
	"fmt"
	"io"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup"
)

// Address is a worker address: plain bytes.
type Address []byte

// String names the worker and its context, for logs.
func (a Address) String() string {
	v, err := wireup.Parse(a)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("worker %s of %v with %d interfaces", shortID(v.Worker), v.Owner(), len(v.Entries))
}

// Endpoint is a path to one remote worker: a handle of 16 bytes, comparable. A
// closed one, and the zero Endpoint, answers ErrClosed. The methods have the concurrency of the Worker.
type Endpoint struct {
	t  *Thread
	id uint64 // generation, index in Worker.eps
}

// nowhere is the worker of the zero Endpoint, closed from the beginning. Nothing
// writes to it.
var nowhere = func() *Worker {
	w := &Worker{closing: true}
	w.t.w = w
	return w
}()

// noLane is the lane of what only the slow halves know: no message is short
// enough for it, so the fast paths need not ask whether there is one.
var noLane = lane{short: -1}

// thread gives the thread of e, for the slow halves.
func (e Endpoint) thread() *Thread {
	if e.t == nil {
		return &nowhere.t
	}
	return e.t
}

// EndpointConfig is what an endpoint is made with. The zero value works.
type EndpointConfig struct {
	// OnFailure is called once when the endpoint fails: in progress, and before Close or
	// Abort of the endpoint, or Close of its worker, returns. In a callback these leave
	// the call to the end of that callback.
	OnFailure func(Endpoint, error)
	// Eager connects at once instead of at the first operation, as UCX_CONNECT=eager
	// has all endpoints do.
	Eager bool
}

// epSlot is all that an unused endpoint costs beside its address: 16 bytes
// without a pointer.
type epSlot struct {
	gen    uint32
	lane   uint32 // 0: not connected, or failed
	peer   wireup.PeerID
	status ucs.Status // OK, or what operations are refused with
	inUse  bool
	// touched: slots may name it, so its end looks for them.
	touched bool
}

// epCold is what few endpoints have.
type epCold struct {
	onFailure func(Endpoint, error)
	err       error                  // why the endpoint failed
	lane      uint32                 // the lane it held when it failed
	owned     map[io.Closer]struct{} // closed with the endpoint
}

// NewEndpoint makes a path to the worker at a, which is copied. Nothing is sent
// and nothing connected before the first operation, unless it is to be eager.
func (w *Worker) NewEndpoint(a Address, c EndpointConfig) (Endpoint, error) {
	w.t.lock()
	defer w.t.unlock()
	if w.closing {
		return Endpoint{}, fmt.Errorf("new endpoint: %w", ErrClosed)
	}
	peer, err := w.peers.Add(a)
	if err != nil {
		return Endpoint{}, fmt.Errorf("new endpoint: %w: %w", ErrInvalid, err)
	}
	k := w.newEpSlot(peer)
	e := w.handle(k)
	if c.Eager || w.eager {
		if st := w.connect(k); st != ucs.OK {
			err := w.reason(k, st)
			w.freeEndpoint(k)
			return Endpoint{}, fmt.Errorf("new endpoint: %w", err)
		}
	}
	if c.OnFailure != nil {
		w.coldOf(k).onFailure = c.OnFailure
	}
	return e, nil
}

func (w *Worker) newEpSlot(peer wireup.PeerID) uint32 {
	k := w.epFree
	if k != 0 {
		w.epFree = uint32(w.eps[k].peer)
	} else {
		k = uint32(len(w.eps))
		w.eps = append(w.eps, epSlot{gen: 1})
		if !w.am.multi {
			w.t.eps = w.eps
		}
	}
	w.eps[k].peer, w.eps[k].inUse, w.eps[k].status = peer, true, ucs.OK
	return k
}

// handle is the endpoint in slot k as the user holds it.
func (w *Worker) handle(k uint32) Endpoint {
	return Endpoint{&w.t, uint64(w.eps[k].gen)<<32 | uint64(k)}
}

// endpoint gives e's slot, 0 where it is closed.
func (w *Worker) endpoint(e Endpoint) uint32 {
	k := uint32(e.id)
	if e.t != &w.t || int(k) >= len(w.eps) || w.eps[k].gen != uint32(e.id>>32) || !w.eps[k].inUse {
		return 0
	}
	return k
}

func (w *Worker) coldOf(k uint32) *epCold {
	c := w.cold[k]
	if c == nil {
		c = new(epCold)
		w.cold[k] = c
	}
	return c
}

// connect opens the lane of endpoint k at its first operation.
func (w *Worker) connect(k uint32) ucs.Status {
	s := &w.eps[k]
	if s.lane != 0 || s.status != ucs.OK {
		return s.status
	}
	s.touched = true
	lane, refused := w.openBest(s.peer)
	if lane != 0 {
		s.lane = lane
		return ucs.OK
	}
	w.failEndpoint(k, ucs.Unreachable, &UnreachableError{shortID(w.peers.UUID(s.peer)), refused})
	w.endTied()
	return ucs.Unreachable
}

// peerName is the remote worker of endpoint k as errors call it.
func (w *Worker) peerName(k uint32) string {
	if k == 0 || !w.eps[k].inUse {
		return ""
	}
	return shortID(w.peers.UUID(w.eps[k].peer))
}

// EndpointInfo describes an endpoint, for people.
type EndpointInfo struct {
	// Peer is the remote worker.
	Peer string
	// Lanes that were opened.
	Lanes []LaneInfo
	// Err is why the endpoint failed; nil: it did not.
	Err error
}

// LaneInfo describes a lane.
type LaneInfo struct {
	Transport, Device string
	// Short is the longest tag message sent by one short operation, Whole the
	// longest sent in one piece, in bytes.
	Short, Whole int
}

// Info describes the endpoint as it is now.
func (e Endpoint) Info() EndpointInfo {
	t := e.thread()
	t.lock()
	defer t.unlock()
	w := t.w
	k := w.endpoint(e)
	if k == 0 {
		return EndpointInfo{Err: ErrClosed}
	}
	i := EndpointInfo{Peer: w.peerName(k)}
	if c := w.cold[k]; c != nil {
		i.Err = c.err
	}
	for n := w.laneOf[w.eps[k].peer]; n != 0; n = w.t.lanes[n].next {
		l := &w.t.lanes[n]
		info := w.ports[l.port].info
		i.Lanes = append(i.Lanes, LaneInfo{info.Transport, info.Device, l.whole, max(l.whole, l.bcopy)})
	}
	return i
}
