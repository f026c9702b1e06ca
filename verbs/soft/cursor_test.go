package soft

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCursor(t *testing.T) {
	var c cursor
	assert.Equal(t, uint64(0), c.begin(true))
	assert.Zero(t, c.word.Load()&cursorLocked, "a single goroutine takes no lock")
	c.end(5)
	assert.Equal(t, uint64(5), c.begin(false))
	assert.NotZero(t, c.word.Load()&cursorLocked)
	assert.Equal(t, uint64(5), c.pos(), "readers see the number as it was")
	got := make(chan uint64)
	go func() { got <- c.begin(false) }()
	for range 100 {
		relax(1000)
	}
	select {
	case <-got:
		t.Fatal("two hold the lock")
	default:
	}
	c.end(6)
	assert.Equal(t, uint64(6), <-got)
	c.end(6)
}

// TestEndsLock: which ends of queues take their locks.
func TestEndsLock(t *testing.T) {
	for _, tc := range []struct {
		name           string
		single, shared bool
		tails, heads   uint64
	}{
		{"plain", false, false, 1, 0},
		{"thread domain", true, false, 0, 0},
		{"shared", false, true, 1, 1},
		{"shared under a thread domain", true, true, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRing(4, tc.single, tc.shared)
			r.post(recvs(0, 2))
			var w recvWQE
			r.take(&w)
			assert.Equal(t, tc.tails, r.tails)
			assert.Equal(t, tc.heads, r.heads)
		})
	}
	s := newRing(4, false, true)
	s.post(recvs(0, 1))
	h := s.head.begin(false)
	got := make(chan bool)
	go func() {
		var w recvWQE
		got <- s.take(&w)
	}()
	for range 100 {
		relax(1000)
	}
	select {
	case <-got:
		t.Fatal("two take from a shared queue")
	default:
	}
	s.head.end(h)
	assert.True(t, <-got)
}
