// Package objects holds what all providers of the verbs API require of a program's objects: each is
// closed after those that use it, belongs to the device that it is used with, and stays within the
// limits of the device. Error texts lack the operation, which the caller adds.
//
// Concurrency: a provider guards the types by the lock of the device's control path.
package objects

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// Kind is a kind of verbs object.
type Kind int

// Kinds of verbs objects.
const (
	PD Kind = iota
	TD
	MR
	CQ
	Channel
	QP
	SRQ
	AH
	MW
	NumKinds
)

// Names are the names of the kinds.
var Names = [NumKinds]string{"pd", "td", "mr", "cq", "channel", "qp", "srq", "ah", "mw"}

// Counts are the open objects of a device. The zero value is that of a device without any.
type Counts struct {
	open   [NumKinds]int
	closed bool
}

// Admit counts a new object.
//
// Errors: ucs.ErrClosed after Close; ucs.ErrNoResource if the device has most objects of the kind;
// most 0 is no limit.
func (c *Counts) Admit(k Kind, most int) error {
	if c.closed {
		return ucs.ErrClosed
	}
	if most > 0 && c.open[k] >= most {
		return fmt.Errorf("%d are open, which is the limit: %w", c.open[k], ucs.ErrNoResource)
	}
	c.open[k]++
	return nil
}

// Release counts one object less.
func (c *Counts) Release(k Kind) { c.open[k]-- }

// Open returns the number of open objects by kind.
func (c *Counts) Open() [NumKinds]int { return c.open }

// CheckNone refuses what requires a device without objects.
//
// Errors: ucs.ErrBusy.
func (c *Counts) CheckNone() error {
	for k, n := range c.open {
		if n > 0 {
			return fmt.Errorf("%d of its objects (%s) are open: %w", n, Names[k], ucs.ErrBusy)
		}
	}
	return nil
}

// Closed reports whether Close has succeeded.
func (c *Counts) Closed() bool { return c.closed }

// Close has Admit refuse objects from now on. It returns false if that was so before.
//
// Errors: ucs.ErrBusy while objects are open.
func (c *Counts) Close() (first bool, err error) {
	if c.closed {
		return false, nil
	}
	if err := c.CheckNone(); err != nil {
		return false, err
	}
	c.closed = true
	return true, nil
}

// Uses counts the objects that use another one, which is closed after them. The zero value is that
// of an open object that none uses.
type Uses struct {
	n      int
	closed bool
}

// CheckOpen refuses the use of a closed object. name is its kind in words.
//
// Errors: ucs.ErrClosed.
func (u *Uses) CheckOpen(name string) error {
	if u.closed {
		return fmt.Errorf("the %s is closed: %w", name, ucs.ErrClosed)
	}
	return nil
}

// Add counts one use more.
func (u *Uses) Add() { u.n++ }

// Release counts one use less.
func (u *Uses) Release() { u.n-- }

// Closed reports whether Close has succeeded.
func (u *Uses) Closed() bool { return u.closed }

// CheckUnused refuses to close an object in use. by are the users in words.
//
// Errors: ucs.ErrBusy.
func (u *Uses) CheckUnused(by string) error {
	if u.n > 0 {
		return fmt.Errorf("%d %s use it: %w", u.n, by, ucs.ErrBusy)
	}
	return nil
}

// Close marks an object that nothing uses as closed. It returns false if that was so before.
//
// Errors: as CheckUnused.
func (u *Uses) Close(by string) (first bool, err error) {
	if u.closed {
		return false, nil
	}
	if err := u.CheckUnused(by); err != nil {
		return false, err
	}
	u.closed = true
	return true, nil
}

// Domain is the account of a protection domain or a parent domain.
type Domain struct {
	Uses
	counts *Counts
	parent *Domain // that a parent domain was allocated in; nil: a protection domain
	thread *Uses   // of its thread domain, which may be nil
}

// Alloc counts a protection domain of the device, within its limit.
func (p *Domain) Alloc(c *Counts, most int) error {
	p.counts = c
	return c.Admit(PD, most)
}

// AllocParent counts a parent domain in p. thread is of its thread domain, nil: none.
func (p *Domain) AllocParent(parent *Domain, thread *Uses, most int) error {
	if thread != nil {
		if err := thread.CheckOpen("thread domain"); err != nil {
			return err
		}
		thread.Add()
	}
	if err := parent.Admit(PD, most); err != nil {
		if thread != nil {
			thread.Release()
		}
		return err
	}
	p.counts, p.parent, p.thread = parent.counts, parent, thread
	return nil
}

// IsParent reports whether p is a parent domain.
func (p *Domain) IsParent() bool { return p.parent != nil }

// Single reports whether one goroutine at a time uses the objects of the domain.
func (p *Domain) Single() bool { return p.thread != nil }

// Admit counts a new object of the domain, as Counts.Admit does.
func (p *Domain) Admit(k Kind, most int) error {
	if err := p.CheckOpen("protection domain"); err != nil {
		return err
	}
	if err := p.counts.Admit(k, most); err != nil {
		return err
	}
	p.Add()
	return nil
}

// Release counts one object of the domain less.
func (p *Domain) Release(k Kind) {
	p.counts.Release(k)
	p.Uses.Release()
}

// Close counts the domain as closed after free has freed it; nil: there is nothing to free.
//
// Errors: ucs.ErrBusy while objects of the domain are open; those of free, after which the domain
// is open.
func (p *Domain) Close(free func() error) error {
	if p.Closed() {
		return nil
	}
	err := p.CheckUnused("objects")
	if err == nil && free != nil {
		err = free()
	}
	if err != nil {
		return err
	}
	p.closed = true
	if p.thread != nil {
		p.thread.Release()
	}
	if p.parent != nil {
		p.parent.Release(PD)
	} else {
		p.counts.Release(PD)
	}
	return nil
}
