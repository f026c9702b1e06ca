package soft

import (
	"slices"
	"sync"
)

// lookers are the queue pairs that looked up memory, outside the receive token,
// since the last quiesce. It asks them alone, and so costs by how many were at work
// and not by how many there are.
type lookers struct {
	waits sync.Mutex // one quiesce at a time, or the second would not wait for the first's
	asked []*qp      // by the quiesce under way; under waits
	lock  latch      // guards list
	list  []*qp      // with room for all queue pairs: nothing is allocated on the way of data
}

// looks notes that q is about to look up memory. Whoever does so without the
// receive token calls it before: the owner, or who has the lock of the send queue.
//
// The load pairs with the store of quiesce, which comes after the key was made
// invalid: who still finds the note has the word that quiesce then waits for, and
// who does not finds no memory.
func (q *qp) looks() {
	if !q.looking.Load() {
		q.d.lookers.add(q)
	}
}

//go:noinline
func (l *lookers) add(q *qp) {
	l.lock.lock()
	if !q.looking.Swap(true) {
		q.lookAt = len(l.list)
		l.list = append(l.list, q)
	}
	l.lock.unlock()
}

// reserve makes room for n queue pairs.
func (l *lookers) reserve(n int) {
	l.lock.lock()
	l.list = slices.Grow(l.list, max(0, n-len(l.list)))
	l.lock.unlock()
}

// remove takes out a queue pair that is closed.
func (l *lookers) remove(q *qp) {
	l.lock.lock()
	if q.looking.Swap(false) {
		last := len(l.list) - 1
		l.list[q.lookAt] = l.list[last]
		l.list[q.lookAt].lookAt = q.lookAt
		l.list[last] = nil
		l.list = l.list[:last]
	}
	l.lock.unlock()
}

// takeAll moves those in the list to asked.
func (l *lookers) takeAll() {
	l.lock.lock()
	defer l.lock.unlock()
	l.asked = append(l.asked[:0], l.list...)
	clear(l.list)
	l.list = l.list[:0]
	for _, q := range l.asked {
		q.looking.Store(false)
	}
}

// quiesce returns when everybody who was inside the engine of a device that can
// touch this one's memory has left, and whoever was posting inline data of it.
func (d *device) quiesce() {
	if all := d.conf.Switch.devices.Load(); all != nil && d.kind == overInproc {
		for _, o := range *all {
			if o != nil {
				o.rx.left()
			}
		}
	}
	d.rx.left()
	l := &d.lookers
	l.waits.Lock()
	defer l.waits.Unlock()
	l.takeAll()
	for _, q := range l.asked {
		q.postersLeft()
		q.left()
	}
	clear(l.asked)
}
