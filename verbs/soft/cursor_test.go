package soft

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCursor(t *testing.T) {
	var c cursor
	assert.Equal(t, uint64(0), c.acquire(true))
	assert.Zero(t, c.word.Load()&cursorLocked, "a single goroutine takes no lock")
	c.publish(5)
	assert.Equal(t, uint64(5), c.acquire(false))
	assert.NotZero(t, c.word.Load()&cursorLocked)
	assert.Equal(t, uint64(5), c.pos(), "readers see the number as it was")
	got := make(chan uint64)
	go func() { got <- c.acquire(false) }()
	for range 100 {
		spin(1000)
	}
	select {
	case <-got:
		t.Fatal("two hold the lock")
	default:
	}
	c.publish(6)
	assert.Equal(t, uint64(6), <-got)
	c.publish(6)
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
			r.pop(&w)
			assert.Equal(t, tc.tails, r.tailLocks)
			assert.Equal(t, tc.heads, r.headLocks)
		})
	}
	s := newRing(4, false, true)
	s.post(recvs(0, 1))
	h := s.head.acquire(false)
	got := make(chan bool)
	go func() {
		var w recvWQE
		got <- s.pop(&w)
	}()
	for range 100 {
		spin(1000)
	}
	select {
	case <-got:
		t.Fatal("two take from a shared queue")
	default:
	}
	s.head.publish(h)
	assert.True(t, <-got)
}
