package soft

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/verbs"
)

func readable(t *testing.T, fd int) bool {
	t.Helper()
	n, err := shmem.NewPollSet(fd).Wait(1, 0)
	require.NoError(t, err)
	return n == 1
}

// TestChannelFD: the descriptor is readable exactly while there are events, also
// when it is asked for late.
func TestChannelFD(t *testing.T) {
	d := openTest(t, Config{})
	for _, late := range []bool{false, true} {
		ch := testChannel(t, d)
		c := testCQ(t, d, verbs.CQConfig{Depth: 10, Channel: ch})
		if !late {
			assert.False(t, readable(t, ch.FD()))
		}
		for range 2 {
			c.Arm(false)
			pushed(c, 1, 0, 1)
		}
		assert.True(t, readable(t, ch.FD()))
		assert.Equal(t, ch.FD(), ch.FD())
		ch.TryEvent()
		assert.True(t, readable(t, ch.FD()), "one is left")
		ch.TryEvent()
		assert.False(t, readable(t, ch.FD()))
	}
}

// TestChannelNetpoller: a goroutine waits in the runtime's poller for a copy of
// the descriptor.
func TestChannelNetpoller(t *testing.T) {
	const n = 100
	d := openTest(t, Config{})
	ch := testChannel(t, d)
	c := testCQ(t, d, verbs.CQConfig{Depth: n, Channel: ch, Cookie: 9})
	fd, err := unix.Dup(ch.FD())
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "channel")
	defer f.Close()
	raw, err := f.SyscallConn()
	require.NoError(t, err)
	go func() {
		for range n {
			c.Arm(false)
			pushed(c, 1, 0, 1)
		}
	}()
	for range n {
		require.NoError(t, raw.Read(func(uintptr) bool {
			k, ok := ch.TryEvent()
			return ok && assert.Equal(t, uint64(9), k)
		}))
	}
}

func TestAsyncFD(t *testing.T) {
	d := openTest(t, Config{})
	assert.False(t, readable(t, d.AsyncFD()))
	d.raise(verbs.AsyncEvent{Type: verbs.EventPortErr, Port: 1})
	assert.True(t, readable(t, d.AsyncFD()))
	e, ok := d.TryAsync()
	require.True(t, ok)
	assert.Equal(t, verbs.EventPortErr, e.Type)
	assert.False(t, readable(t, d.AsyncFD()))
	d.Ack(e)
}
