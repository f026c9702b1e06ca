package soft

import (
	"slices"
	"sync"
)

// memoryUsers is the set of queue pairs that have looked up memory keys outside the receive
// token since the last quiesce. Deregistration waits for these alone, so its cost
// depends on how many queue pairs were active, not on how many exist.
//
// Invariant: MR.Close first makes the key invalid, then calls quiesce, then returns the
// memory to the program. A goroutine that looked the key up before still holds one of
// these: the ownership or the posters' lock of a queue pair in the set, or the receive
// token of a device. quiesce waits for all of them.
type memoryUsers struct {
	quiesceMu sync.Mutex // one quiesce at a time: a second must also wait for those that the first took
	draining  []*qp      // those that the running quiesce waits for; guarded by waits
	lock      spinlock   // guards list
	list      []*qp      // has room for all queue pairs: the data path does not allocate
}

// markMemoryUser adds q to the set. It is called before a memory lookup by a goroutine without
// the receive token: the owner, or the holder of the posters' lock.
//
// The load pairs with the store in takeAll, which follows the invalidation of the key.
// If it is not 0, quiesce has yet to wait for the word that the caller holds. If it
// is 0, the lookup that follows finds the key invalid.
func (q *qp) markMemoryUser() {
	if q.memoryUser.Load() == 0 {
		q.d.memoryUsers.add(q)
	}
}

//go:noinline
func (l *memoryUsers) add(q *qp) {
	l.lock.lock()
	if q.memoryUser.Load() == 0 {
		l.list = append(l.list, q)
		q.memoryUser.Store(int32(len(l.list)))
	}
	l.lock.unlock()
}

// reserve makes room for n queue pairs.
func (l *memoryUsers) reserve(n int) {
	l.lock.lock()
	l.list = slices.Grow(l.list, max(0, n-len(l.list)))
	l.lock.unlock()
}

// remove deletes a closed queue pair.
func (l *memoryUsers) remove(q *qp) {
	l.lock.lock()
	if at := q.memoryUser.Load(); at != 0 {
		last := len(l.list) - 1
		l.list[at-1] = l.list[last]
		l.list[at-1].memoryUser.Store(at)
		q.memoryUser.Store(0)
		l.list[last] = nil
		l.list = l.list[:last]
	}
	l.lock.unlock()
}

// takeAll moves the set to asked.
func (l *memoryUsers) takeAll() {
	l.lock.lock()
	defer l.lock.unlock()
	l.draining = append(l.draining[:0], l.list...)
	clear(l.list)
	l.list = l.list[:0]
	for _, q := range l.draining {
		q.memoryUser.Store(0)
	}
}

// quiesce waits until no goroutine uses memory of this device that it looked up before
// the call. Such a goroutine holds a receive token of a device on the same switch, or
// owns a queue pair, or copies inline data while posting.
func (d *device) quiesce() {
	if all := d.conf.Switch.devices.Load(); all != nil && d.kind == overInproc {
		for _, o := range *all {
			if o != nil {
				o.rx.awaitRelease()
			}
		}
	}
	d.rx.awaitRelease()
	l := &d.memoryUsers
	l.quiesceMu.Lock()
	defer l.quiesceMu.Unlock()
	l.takeAll()
	for _, q := range l.draining {
		q.awaitPost()
		q.awaitRelease()
	}
	clear(l.draining)
}
