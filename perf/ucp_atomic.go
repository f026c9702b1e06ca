package perf

import (
	"github.com/goucx/goucx/ucp"
)

// ucpAtomic is ucp_add, ucp_fadd, ucp_swap and ucp_cswap on words of type T.
type ucpAtomic[T uint32 | uint64] struct {
	*ucpSide
	loop    func(n int) error
	stamped func(n int, st *stamps) error
	post    func() ucp.Fetch[T]
	word    ucp.Atomic[T]
	fetches []ucp.Fetch[T] // outstanding, with a window above 1
	next    int
	full    bool
}

func newUCPAtomic[T uint32 | uint64](s *ucpSide) (kernel, error) {
	word, err := ucp.AtomicAt[T](s.key, 0)
	if err != nil {
		return nil, err
	}
	k := &ucpAtomic[T]{ucpSide: s, word: word, fetches: make([]ucp.Fetch[T], len(s.window))}
	k.loop = k.burstFetch
	switch s.test.Op { //nolint:exhaustive // the others are no atomics
	case OpAdd:
		k.loop = k.burstAdd
	case OpFetchAdd:
		k.post = func() ucp.Fetch[T] { return k.word.FetchAdd(1) }
		if len(k.fetches) == 1 && s.thread == nil {
			k.loop, k.stamped = k.waitFetchAdd, k.eachFetchAdd
		}
	case OpSwap:
		k.post = func() ucp.Fetch[T] { return k.word.Swap(1) }
	case OpCompareSwap:
		k.post = func() ucp.Fetch[T] { return k.word.CompareAndSwap(0, 1) }
	}
	return k, nil
}

func (k *ucpAtomic[T]) active(n int64, st *stamps) error {
	if err := stream(k, n, st, k.link); err != nil {
		return err
	}
	for _, f := range k.pending() {
		if err := posted(k.ucpSide, f); err != nil {
			return err
		}
		if _, err := f.Wait(k.link); err != nil {
			return err
		}
	}
	k.next, k.full = 0, false
	return k.flush()
}

func (k *ucpAtomic[T]) passive(int64) error { return nil }
func (k *ucpAtomic[T]) burst(n int) error   { return k.loop(n) }

func (k *ucpAtomic[T]) each(n int, st *stamps) error {
	if k.stamped != nil {
		return k.stamped(n, st)
	}
	return eachOf(k, n, st)
}

// pending returns the fetches whose result has not been read.
func (k *ucpAtomic[T]) pending() []ucp.Fetch[T] {
	if k.full {
		return k.fetches
	}
	return k.fetches[:k.next]
}

// nextFetch returns the slot for the next fetch, after its previous result has been read.
func (k *ucpAtomic[T]) nextFetch() (*ucp.Fetch[T], error) {
	f := &k.fetches[k.next]
	var err error
	if k.full {
		if err = posted(k.ucpSide, *f); err == nil {
			_, err = f.Wait(k.link)
		}
	}
	if k.next++; k.next == len(k.fetches) {
		k.next, k.full = 0, true
	}
	return f, err
}

//go:noinline
func (k *ucpAtomic[T]) burstAdd(n int) error {
	word := k.word
	for range n {
		if r := word.Add(1); r != (ucp.Request{}) {
			if err := k.enqueue(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// burstFetch posts n fetches; a slot of the window is read before it is used again.
//
//go:noinline
func (k *ucpAtomic[T]) burstFetch(n int) error {
	for range n {
		f, err := k.nextFetch()
		if err != nil {
			return err
		}
		*f = k.post()
	}
	return nil
}

//
//hot:bench BenchmarkRun/ucp_fadd
//go:noinline
func (k *ucpAtomic[T]) waitFetchAdd(n int) error {
	word, l := k.word, k.link
	for range n {
		if _, err := word.FetchAdd(1).Wait(l); err != nil {
			return err
		}
	}
	return nil
}

//
//hot:bench BenchmarkRun/ucp_fadd_each
//go:noinline
func (k *ucpAtomic[T]) eachFetchAdd(n int, st *stamps) error {
	word, l, i, prev := k.word, k.link, st.n, st.prev
	for range n {
		if _, err := word.FetchAdd(1).Wait(l); err != nil {
			return err
		}
		t := cycles()
		st.ring[i%ringLen] = t - prev
		i++
		prev = t
		if t-st.mark >= st.due {
			st.n, st.prev = i, prev
			st.report()
		}
	}
	st.n, st.prev = i, prev
	return nil
}
