package soft

import (
	"slices"
	"sync"
)

// lookers is the set of queue pairs that have looked up memory keys outside the receive
// token since the last quiesce. Deregistration waits for these alone, so its cost
// depends on how many queue pairs were active, not on how many exist.
//
// Invariant: MR.Close first makes the key invalid, then calls quiesce, then returns the
// memory to the program. A goroutine that looked the key up before still holds one of
// these: the ownership or the posters' lock of a queue pair in the set, or the receive
// token of a device. quiesce waits for all of them.
type lookers struct {
	waits sync.Mutex // one quiesce at a time: a second must also wait for those that the first took
	asked []*qp      // those that the running quiesce waits for; guarded by waits
	lock  latch      // guards list
	list  []*qp      // has room for all queue pairs: the data path does not allocate
}

// looks adds q to the set. It is called before a memory lookup by a goroutine without
// the receive token: the owner, or the holder of the posters' lock.
//
// The load pairs with the store in takeAll, which follows the invalidation of the key.
// If it reads true, quiesce has yet to wait for the word that the caller holds. If it
// reads false, the lookup that follows finds the key invalid.
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

// remove deletes a closed queue pair.
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

// takeAll moves the set to asked.
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

// quiesce waits until no goroutine uses memory of this device that it looked up before
// the call. Such a goroutine holds a receive token of a device on the same switch, or
// owns a queue pair, or copies inline data while posting.
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
