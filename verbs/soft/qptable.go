package soft

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// qpTable maps numbers to queue pairs; find takes no lock. Numbers are random: they
// cannot be guessed, and late packets of a closed queue pair match no other one.
//
// Changes are guarded by device.mu. A table that is more than half full is replaced. A
// reader of the old table may still find a removed queue pair, as if it had found it
// before.
type qpTable struct {
	slots atomic.Pointer[[]atomic.Pointer[qp]] // length a power of two; open addressing
	used  int                                  // slots in use, tombstones included
	n     int
}

// tombstone is the tombstone of a removed queue pair.
var tombstone = &qp{num: ^verbs.QPN(0)}

const (
	minQPSlots  = 8
	firstQPN    = 16 // those below are special
	qpnTries    = 1000
	qpnBits     = 24
	maxQPsOpen  = 1 << 20
	multicastQP = uint32(verbs.MulticastQPN)
)

// find returns the queue pair with that number, or nil.
func (t *qpTable) find(num verbs.QPN) *qp {
	p := t.slots.Load()
	if p == nil {
		return nil
	}
	s := *p
	mask := uint32(len(s) - 1)
	for i := uint32(num) & mask; ; i = (i + 1) & mask {
		q := s[i].Load()
		if q == nil || q.num == num {
			return q
		}
	}
}

// add assigns a random number to q and inserts it.
func (t *qpTable) add(q *qp) error {
	if t.n >= maxQPsOpen {
		return fmt.Errorf("%d queue pairs are open: %w", t.n, ucs.ErrNoResource)
	}
	for range qpnTries {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		num := binary.LittleEndian.Uint32(b[:]) >> (32 - qpnBits)
		if num < firstQPN || num == multicastQP || t.find(verbs.QPN(num)) != nil {
			continue
		}
		q.num = verbs.QPN(num)
		t.n++
		t.used++
		if p := t.slots.Load(); p == nil || 2*t.used > len(*p) {
			t.rebuild()
			t.used++
		}
		insertQP(*t.slots.Load(), q)
		return nil
	}
	return fmt.Errorf("no free number for a queue pair: %w", ucs.ErrNoResource)
}

// remove deletes q. A goroutine that found it before may still use it.
func (t *qpTable) remove(q *qp) {
	s := *t.slots.Load()
	for i := range s {
		j := (uint32(q.num) + uint32(i)) & uint32(len(s)-1)
		if s[j].Load() == q {
			s[j].Store(tombstone)
			if t.n--; 16*t.n < len(s) && len(s) > minQPSlots {
				t.rebuild()
			}
			return
		}
	}
}

// rebuild replaces the table by one of at least four times the number of queue pairs,
// without tombstones.
func (t *qpTable) rebuild() {
	size := minQPSlots
	for size < 4*t.n {
		size *= 2
	}
	s := make([]atomic.Pointer[qp], size)
	t.used = 0
	t.each(func(q *qp) {
		insertQP(s, q)
		t.used++
	})
	t.slots.Store(&s)
}

func insertQP(s []atomic.Pointer[qp], q *qp) {
	mask := uint32(len(s) - 1)
	i := uint32(q.num) & mask
	for s[i].Load() != nil {
		i = (i + 1) & mask
	}
	s[i].Store(q)
}

// each calls f for every queue pair.
func (t *qpTable) each(f func(*qp)) {
	p := t.slots.Load()
	if p == nil {
		return
	}
	for i := range *p {
		if q := (*p)[i].Load(); q != nil && q != tombstone {
			f(q)
		}
	}
}
