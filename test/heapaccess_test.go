//go:build linux

package test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucp"
)

// roleLender registers two pieces of its own memory, and prints its address and their keys. Lines:
//
//	received: "unmap"; sent: "unmapped", after the first was unmapped
//	received: "close"; sent: "closed", after the second was closed, and the error
func roleLender(p *parent) {
	v := must(newNode(ucp.ThreadMulti, patience))
	var all [2][]byte
	var handles [2]*ucp.MemHandle
	for i := range all {
		all[i] = must(unix.Mmap(-1, 0, big, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
		handles[i] = must(v.x.Register(all[i], ucp.MemConfig{}))
	}
	p.say(v.address(), hex.EncodeToString(handles[0].Key()), hex.EncodeToString(handles[1].Key()))
	go func() { check(v.w.Run(context.Background())) }()
	for {
		switch p.hear() {
		case "unmap":
			check(unix.Munmap(all[0]))
			p.say("unmapped")
		case "close":
			p.say("closed", handles[1].Close())
		}
	}
}

// lenderOfHeap is a lender with the keys of its memory.
type lenderOfHeap struct {
	*process
	*node
	e    ucp.Endpoint
	keys [2]*ucp.RemoteKey
}

func startLender(t *testing.T) *lenderOfHeap {
	withinHost(t)
	l := &lenderOfHeap{process: start(t, "lender"), node: open(t, ucp.ThreadSingle)}
	var address string
	var keys [2]string
	l.scan(&address, &keys[0], &keys[1])
	l.e = l.dial(t, address)
	for i := range keys {
		k, err := l.unpack(l.e, keys[i])
		if errors.Is(err, ucp.ErrUnreachable) {
			t.Skip(err) // copies between processes are forbidden here
		}
		require.NoError(t, err)
		l.keys[i] = k
	}
	return l
}

// exchange puts n bytes and gets them again.
func (l *lenderOfHeap) exchange(k *ucp.RemoteKey, n int, seed uint64) error {
	ctx, out, in := bounded(l.t), make([]byte, n), make([]byte, n)
	if n >= messageHead {
		fill(out, 1, seed)
	}
	if err := k.Put(out, 0).Wait(ctx); err != nil {
		return err
	}
	if err := l.e.Flush().Wait(ctx); err != nil {
		return err
	}
	if err := k.Get(in, 0).Wait(ctx); err != nil {
		return err
	}
	require.True(l.t, bytes.Equal(out, in), "%d bytes", n)
	return nil
}

// TestHeapOfStoppedOwner: put and get need no owner that runs; an atomic waits for it, and can be given up.
func TestHeapOfStoppedOwner(t *testing.T) {
	l := startLender(t)
	a, err := ucp.AtomicAt[uint64](l.keys[0], 0)
	require.NoError(t, err)
	require.NoError(t, l.exchange(l.keys[0], big, 1))
	require.NoError(t, l.keys[0].PutUint64(5, 0).Wait(bounded(t)))
	l.signal(syscall.SIGSTOP)
	waitStopped(t, l.process)
	for i, n := range []int{8, 511, 4096, 64 << 10, 512<<10 + 1, big - 8} {
		require.NoError(t, l.exchange(l.keys[1], n, uint64(i)))
	}
	f := a.FetchAdd(1)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = f.Wait(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, l.keys[1].Put(make([]byte, big), 0).Wait(bounded(t)), "put and get go on; a flush would wait")
	require.NoError(t, l.keys[1].Get(make([]byte, big), 0).Wait(bounded(t)))
	l.signal(syscall.SIGCONT)
	old, err := f.Wait(bounded(t))
	require.NoError(t, err)
	require.EqualValues(t, 5, old)
}

// TestHeapUnmapped: memory that its owner unmaps, or whose registration it closes, while a peer uses it. The operations
// fail, and nothing else does.
func TestHeapUnmapped(t *testing.T) {
	l := startLender(t)
	for i, what := range []string{"unmap", "close"} {
		k, said := l.keys[i], false
		require.NoError(t, l.exchange(k, big, 1))
		l.say(what)
		var err error
		for began := time.Now(); err == nil && time.Since(began) < patience; { // in the middle of puts and gets
			err = l.exchange(k, big, 2)
		}
		require.ErrorIs(t, err, ucp.ErrRemoteAccess)
		for !said {
			line := l.hear()
			said = line == "unmapped" || line == "closed <nil>"
			require.True(t, said, line)
		}
		require.ErrorIs(t, l.exchange(k, 8, 3), ucp.ErrRemoteAccess)
		require.NoError(t, l.e.TagSend(make([]byte, 100), tagNever).Wait(bounded(t)))
		require.NoError(t, l.e.Flush().Wait(bounded(t)), "the endpoint goes on")
		if i == 0 {
			require.NoError(t, l.exchange(l.keys[1], big, 4), "other memory, too")
		}
	}
}

// TestHeapLocalBufferUnmapped: a buffer of this program that is not there any more is an error too.
func TestHeapLocalBufferUnmapped(t *testing.T) {
	l := startLender(t)
	b, err := unix.Mmap(-1, 0, big, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(b)) }()
	require.Error(t, l.keys[0].Put(b, 0).Wait(bounded(t)))
	require.Error(t, l.keys[0].Get(b, 0).Wait(bounded(t)))
	require.NoError(t, l.exchange(l.keys[0], big, 1))
}

// TestHeapOfKilledOwner: a put, a get and an atomic of memory of a process that is killed meanwhile end with its failure.
func TestHeapOfKilledOwner(t *testing.T) {
	l := startLender(t)
	a, err := ucp.AtomicAt[uint64](l.keys[1], 0)
	require.NoError(t, err)
	_, err = a.FetchAdd(1).Wait(bounded(t))
	require.NoError(t, err)
	l.signal(syscall.SIGSTOP)
	waitStopped(t, l.process)
	f := a.FetchAdd(1)
	l.signal(syscall.SIGKILL)
	began := time.Now()
	for err = nil; err == nil && time.Since(began) < mostLate; {
		err = l.exchange(l.keys[0], big, 1)
	}
	require.ErrorIs(t, err, ucp.ErrPeerFailed)
	_, err = f.Wait(bounded(t))
	require.ErrorIs(t, err, ucp.ErrPeerFailed)
	require.Less(t, time.Since(began), mostLate)
	require.ErrorIs(t, l.exchange(l.keys[0], 8, 2), ucp.ErrPeerFailed)
}
