package objects

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Owned is an object of a device that a program passes back to create or change other objects.
type Owned[D comparable] interface {
	comparable
	// MadeBy returns the device.
	MadeBy() D
}

// Own converts v to an object of the device. name is its role in error texts.
//
// Errors: ucs.ErrInvalid for nil, and for an object of another device or provider.
func Own[T Owned[D], D comparable](d D, name string, v any) (T, error) {
	var none T
	if v == nil {
		return none, fmt.Errorf("no %s: %w", name, ucs.ErrInvalid)
	}
	o, ok := v.(T)
	if !ok || o == none {
		return none, fmt.Errorf("%s %T of another provider: %w", name, v, ucs.ErrInvalid)
	}
	if o.MadeBy() != d {
		return none, fmt.Errorf("%s of another device: %w", name, ucs.ErrInvalid)
	}
	return o, nil
}

// OwnOrNil is Own for an optional object: nil stays nil.
func OwnOrNil[T Owned[D], D comparable](d D, name string, v any) (T, error) {
	if v == nil {
		var none T
		return none, nil
	}
	return Own[T](d, name, v)
}

// Queue is a completion queue or an SRQ.
type Queue interface {
	comparable
	// Account returns the account of the queue pairs that use it.
	Account() *Uses
}

// Queues are the queues of a queue pair.
type Queues[C, S Queue] struct {
	Send, Recv C
	SRQ        S // nil: none
}

// accounts returns those of the queues.
func (q *Queues[C, S]) accounts() []*Uses {
	var none S
	all := []*Uses{q.Send.Account(), q.Recv.Account()}
	if q.SRQ != none {
		all = append(all, q.SRQ.Account())
	}
	return all
}

// CheckOpen refuses closed queues.
//
// Errors: ucs.ErrClosed.
func (q *Queues[C, S]) CheckOpen() error {
	for _, u := range q.accounts() {
		if u.Closed() {
			return fmt.Errorf("one of its queues is closed: %w", ucs.ErrClosed)
		}
	}
	return nil
}

// Add counts the queue pair in its queues.
func (q *Queues[C, S]) Add() {
	for _, u := range q.accounts() {
		u.Add()
	}
}

// Release undoes Add.
func (q *Queues[C, S]) Release() {
	for _, u := range q.accounts() {
		u.Release()
	}
}

// OwnQueue is a queue of a device.
type OwnQueue[D comparable] interface {
	Owned[D]
	Queue
}

// QueuesOf checks the configuration of a queue pair, and converts the queues that it names to those of
// the device. With an SRQ it clears the sizes of the receive queue: the SRQ has its own.
//
// Errors: ucs.ErrInvalid.
func QueuesOf[C, S OwnQueue[D], D comparable](d D, most *verbs.DeviceAttr, c *verbs.QPConfig) (q Queues[C, S], err error) {
	switch c.Type {
	case verbs.RC, verbs.UC, verbs.UD:
	default:
		return q, fmt.Errorf("type %d: %w", c.Type, ucs.ErrInvalid)
	}
	if q.Send, err = Own[C](d, "send CQ", c.SendCQ); err != nil {
		return q, err
	}
	if q.Recv, err = Own[C](d, "receive CQ", c.RecvCQ); err != nil {
		return q, err
	}
	if q.SRQ, err = OwnOrNil[S](d, "SRQ", c.SRQ); err != nil {
		return q, err
	}
	a := &c.Caps
	if c.SRQ != nil {
		a.MaxRecv, a.MaxRecvSGE = 0, 0
	}
	return q, inRange(
		size{"MaxSend", a.MaxSend, 0, most.MaxQPWR},
		size{"MaxRecv", a.MaxRecv, 0, most.MaxQPWR},
		size{"MaxSendSGE", a.MaxSendSGE, 0, most.MaxSGE},
		size{"MaxRecvSGE", a.MaxRecvSGE, 0, most.MaxSGE},
		size{"MaxInline", a.MaxInline, 0, most.MaxInline},
	)
}

// CheckSRQ refuses sizes beyond the device.
func CheckSRQ(most *verbs.DeviceAttr, a *verbs.SRQAttr) error {
	return inRange(size{"MaxWR", a.MaxWR, 1, most.MaxSRQWR}, size{"MaxSGE", a.MaxSGE, 0, most.MaxSRQSGE})
}

// CheckTD refuses an unknown way to share doorbells.
func CheckTD(c verbs.TDConfig) error { return inRange(size{"Sharing", c.Sharing, 0, 2}) }

// CheckDepth refuses depths of a completion queue beyond the device.
func CheckDepth(most *verbs.DeviceAttr, depth int) error {
	return inRange(size{"Depth", depth, 1, most.MaxCQE})
}

// size is a number that a program asks for, with its bounds.
type size struct {
	name               string
	asked, least, most int
}

func inRange(sizes ...size) error {
	for _, s := range sizes {
		if s.asked < s.least || s.asked > s.most {
			return fmt.Errorf("%s %d, want %d to %d: %w", s.name, s.asked, s.least, s.most, ucs.ErrInvalid)
		}
	}
	return nil
}

// CheckRegistration refuses registrations that contradict the specification, and access that is
// not known. n is the length of the memory and at its address; CheckRegistration returns the address
// of its first byte in the region.
//
// Errors: ucs.ErrInvalid.
//
// Source: IBTA vol. 1, 10.6.3; ibv_reg_mr(3).
func CheckRegistration(n int, at uint64, known verbs.Access, c verbs.MRConfig) (addr uint64, err error) {
	a := c.Access
	switch {
	case a&^known != 0:
		return 0, fmt.Errorf("access %#x is unknown: %w", uint32(a&^known), ucs.ErrInvalid)
	case a&(verbs.RemoteWrite|verbs.RemoteAtomic) != 0 && a&verbs.LocalWrite == 0:
		return 0, fmt.Errorf("access %#x: RemoteWrite and RemoteAtomic require LocalWrite: %w", uint32(a), ucs.ErrInvalid)
	case n == 0:
		return 0, fmt.Errorf("memory of no bytes: %w", ucs.ErrInvalid)
	case c.HasIOVA && a&verbs.ZeroBased != 0 && c.IOVA != 0:
		return 0, fmt.Errorf("zero-based at %#x: %w", c.IOVA, ucs.ErrInvalid)
	case c.HasIOVA && c.IOVA+uint64(n-1) < c.IOVA:
		return 0, fmt.Errorf("at %#x, beyond the last address: %w", c.IOVA, ucs.ErrInvalid)
	case c.HasIOVA:
		return c.IOVA, nil
	case a&verbs.ZeroBased != 0:
		return 0, nil
	}
	return at, nil
}
