package ucp

import (
	"context"
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
)

// Request is an operation that may be in progress. The zero Request is complete and
// successful. Requests need not be freed: a program may drop a Request, and may look at one
// that completed long ago. A released Request reports success. An error is kept until the
// endpoint closes, and for some time after that.
//
// The methods have the concurrency of the Worker that created the Request.
type Request struct {
	t  *thread
	id uint64 // slot and generation, or an encoded refusal (see refuse)
}

// refusedBit marks a request that was refused when it was posted:
//
//	63 | 62..56 status | 55..48 operation | 47..32 endpoint generation | 31..0 endpoint
const refusedBit = 1 << 63

// refuse returns the request of an operation that never began.
//
//go:noinline
func (t *thread) refuse(op request.Kind, e Endpoint, st ucs.Status) Request {
	if k := uint32(e.id); st == ucs.PeerFailed && op != request.Flush && t.endpoint(e) != 0 {
		t.eps[k].lost = true // a flush reports what the program may have dropped
	}
	if e.id == foreignEndpoint && st == ucs.Closed {
		st = refusedForeign
	}
	return Request{t, refusedBit | uint64(st)<<56 | uint64(op)<<48 | uint64(uint16(e.id>>32))<<32 | uint64(uint32(e.id))}
}

// Done reports whether the operation has completed. It does not progress.
//
//gcassert:inline
func (r Request) Done() bool {
	return r.id == 0 || r.doneSlow()
}

//go:noinline
func (r Request) doneSlow() bool {
	if r.id&refusedBit != 0 {
		return true
	}
	w := r.t
	r.t.lock()
	done := !w.slab.Live(r.id)
	r.t.unlock()
	return done
}

// Err returns the error of an operation that has completed, and nil before. It does not
// progress and does not consume the result of a receive.
func (r Request) Err() error {
	if r.id == 0 {
		return nil
	}
	r.t.lock()
	defer r.t.unlock()
	_, err := r.look()
	return err
}

// Wait progresses the worker until the operation has completed, and returns its error. If
// ctx ends before that, Wait returns context.Cause(ctx) and the operation goes on. The
// library owns the buffer until the operation completes. Wait does not look at ctx if the
// operation has completed already. Otherwise it panics for a nil ctx.
//
//gcassert:inline
func (r Request) Wait(ctx context.Context) error {
	if r.id == 0 {
		return nil
	}
	_, err := r.waitSlow(ctx)
	return err
}

// waitSlow is Wait for any request but the zero one. If ended is true, err is the result of
// the operation. Otherwise err is the reason why the wait stopped.
//
//go:noinline
func (r Request) waitSlow(ctx context.Context) (ended bool, err error) {
	if r.id&refusedBit != 0 {
		return true, r.Err()
	}
	w := r.t
	if r.t.locked {
		w.owner.lockShared()
		_, ended, err = r.waitShared(ctx, false)
		return ended, err
	}
	if ctx == nil && w.slab.Live(r.id) {
		panic(nilContext)
	}
	i, g := uint32(r.id), uint32(r.id>>32)
	var p waitLoop
	for {
		s := &w.slab.Slots[i]
		if s.Gen != g {
			return true, nil
		}
		if s.State != request.StateLive {
			return r.look()
		}
		if err := p.after(ctx, w, w.progress(), r.id); err != nil {
			if ended, outcome := r.look(); ended { // the last pass completed it
				return true, outcome
			}
			return false, err
		}
	}
}

// look reports whether the operation has completed, and its error.
func (r Request) look() (ended bool, err error) {
	w, id := r.t, r.id
	if id&refusedBit != 0 {
		return true, r.refusal()
	}
	i := w.slab.Find(id)
	if i == 0 {
		return true, nil
	}
	s := &w.slab.Slots[i]
	switch {
	case s.State == request.StateLive:
		return false, nil
	case s.Status == ucs.OK:
		return true, nil
	}
	err = w.slotErr(i)
	if s.Flags&request.FlagHasResult == 0 {
		s.State = request.StateRead
		w.slab.keepUnclaimed(i)
	}
	return true, err
}

// Cancel completes a send or a receive at once with ErrCanceled, whatever the peer does.
// The caller then owns the buffer. Only if a device is copying the message between the two
// buffers, both requests complete when that copy has ended. A receive into memory that the
// sender, in another process of this host, maps ends with ErrBufferExposed if the sender was
// stopped inside of a copy: at most 32 KB of the buffer may change later. A message that was sent
// completely may still be received. A message that was sent in part fails its receive, and
// a receive that is canceled in the middle of its message fails the send. Put, get,
// atomics, flush and fence ignore Cancel. It is harmless to call it late or twice.
func (r Request) Cancel() {
	if r.id == 0 || r.id&refusedBit != 0 {
		return
	}
	r.t.lock()
	defer r.t.unlock()
	if r.t.slab.Live(r.id) {
		if cancel := r.t.operations[r.t.slab.Slots[uint32(r.id)].Op].cancel; cancel != nil {
			cancel(r.t, uint32(r.id))
		}
	}
}

// String returns the operation, the peer, the lane and the state, for logs.
func (r Request) String() string {
	if r.id == 0 {
		return "request: done"
	}
	r.t.lock()
	defer r.t.unlock()
	w := r.t
	if r.id&refusedBit != 0 {
		return "request: " + r.refusal().Error()
	}
	i := w.slab.Find(r.id)
	if i == 0 {
		return "request: done"
	}
	s := &w.slab.Slots[i]
	if s.State != request.StateLive && s.Status != ucs.OK {
		return "request: " + w.slotErr(i).Error()
	}
	e := OpError{Op: s.Op.String(), Peer: w.peerName(s.EP), Lane: w.laneName(s.Lane), Err: ucs.ErrInProgress}
	if s.State != request.StateLive {
		return fmt.Sprintf("request: %s: done", e.Op)
	}
	return "request: " + e.Error()
}

// Finish is Wait, but the end of ctx cancels the operation. The error then wraps ErrCanceled
// and context.Cause(ctx). Finish returns only when the
// caller owns the buffer again. An operation that succeeds nevertheless has no error. If
// the operation does not complete within CloseTimeout, Finish returns ErrBufferExposed.
func (r Request) Finish(ctx context.Context) error {
	if r.id == 0 {
		return nil
	}
	ended, reason := r.waitSlow(ctx)
	if ended {
		return reason
	}
	r.Cancel()
	ended, err := r.waitBounded()
	switch {
	case !ended:
		return fmt.Errorf("%w: %w", ErrBufferExposed, err)
	case errors.Is(err, ErrCanceled):
		return fmt.Errorf("%w: %w", err, reason)
	default:
		return err
	}
}

// Opts are rare options of one operation. The zero Opts sets none.
type Opts struct {
	// Mem is the registration that covers the buffer. It saves looking it up.
	Mem *MemHandle
	// Flags are options without a value.
	Flags Flags
}

// Flags is a set of options. An operation ignores those that it has no use for.
type Flags uint32

// Flags of messages.
const (
	// ForceEager sends the data eagerly, however long it is.
	ForceEager Flags = 1 << iota
	// ForceRendezvous sends the data by rendezvous, however short it is: the receiver
	// requests it after an RTS. Together with ForceEager it is ErrInvalid.
	ForceRendezvous
	// WantReply allows the receiver of an active message to reply through AM.From.
	WantReply
)

const (
	allFlags  = ForceEager | ForceRendezvous | WantReply
	bothForms = ForceEager | ForceRendezvous
)

// check returns OK if f is valid, else the status of the refusal.
func (f Flags) check() ucs.Status {
	switch {
	case f&^allFlags != 0:
		return refusedFlags
	case f&bothForms == bothForms:
		return refusedForms
	default:
		return ucs.OK
	}
}
