package ucp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

const (
	loadSenders = 16               // each with a Thread
	loadOpeners = 2                // each with a Thread for each message
	loadLeast   = 40               // tag messages that a sender sends at least; all that it does in the short form
	loadWindow  = 16               // messages of a sender in progress
	loadLast    = ucp.Tag(1) << 32 // marks the last message of a sender
)

// loadSizes are on both sides of the lengths at which the protocol changes.
var loadSizes = []int{8, 16, 200, 1000, 2000, 2100, 4000, 4200, 6100, 6200, 8100, 8300, 20_000, 70_000}

func loadSize(sender, n uint64) int { return loadSizes[(sender+n)%uint64(len(loadSizes))] }

var loadPattern = func() []byte {
	p := make([]byte, 256+70_000)
	for i := range p {
		p[i] = byte(i * 7)
	}
	return p
}()

// load is many Threads of one worker that send to another one.
type load struct {
	*testing.T
	ctx  context.Context
	a    *ucp.Worker
	ep   ucp.Endpoint
	key  *ucp.RemoteKey
	mem  *ucp.MemHandle // of the receiver: the number of all adds, a word for each sender
	stop atomic.Bool

	tags, ams [loadSenders + loadOpeners]uint64 // received from each
	fetches   []loadFetch
}

// loadFetch is the data of an active message that the receiver fetches.
type loadFetch struct {
	r         ucp.RecvRequest
	sender, n uint64
	p         []byte
}

// Sixteen goroutines send through a Thread each, others open and close Threads. Each message
// arrives once, whole, in the order of its sender; puts and atomics take effect.
func TestThreadLoad(t *testing.T) {
	limit := time.Duration(0)
	if os.Getenv("GOUCX_TEST_LONG") != "" {
		limit = 30 * time.Second
	}
	for _, c := range []struct{ name, transport, link string }{
		{"shm", "shm", "inproc"},
		{"rc", "rc", "udp"},
		{"rc, in process", "rc", "inproc"},
		{"ud", "ud", "udp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := ucp.Open(ucp.Config{Providers: provider(c.transport), Settings: settings(t, "UCX_SOFT_LINK="+c.link)})
			require.NoError(t, err)
			defer func() { require.NoError(t, x.Close()) }()
			ctx, cancel := context.WithTimeout(t.Context(), limit+2*time.Minute)
			defer cancel()
			l := &load{T: t, ctx: ctx}
			l.a, err = x.NewWorker(ucp.WorkerConfig{})
			require.NoError(t, err)
			b, err := x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
			require.NoError(t, err)
			require.NoError(t, b.HandleAM(1, l.handle))
			l.mem, err = x.Allocate(8*(1+loadSenders), ucp.MemConfig{})
			require.NoError(t, err)
			l.ep, err = l.a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
			require.NoError(t, err)
			l.key, err = l.ep.UnpackKey(l.mem.Key())
			require.NoError(t, err)

			var all sync.WaitGroup
			for i := range uint64(loadSenders) {
				all.Go(func() { assert.NoError(t, l.send(i), "sender %d", i) })
			}
			for i := range uint64(loadOpeners) {
				all.Go(func() { assert.NoError(t, l.open(loadSenders+i), "opener %d", i) })
			}
			defer func() {
				if t.Failed() {
					cancel()
				}
				all.Wait()
			}()
			time.AfterFunc(limit, func() { l.stop.Store(true) })
			l.receive(b)
		})
	}
}

// send sends messages of all kinds until the stop, if there were enough, and then how many there were.
func (l *load) send(i uint64) error {
	th, err := l.a.NewThread()
	if err != nil {
		return err
	}
	e, k := l.ep.On(th), l.key.On(th)
	count, err := ucp.AtomicAt[uint64](k, 0)
	if err != nil {
		return err
	}
	var window [loadWindow]ucp.Request
	var bufs [loadWindow][]byte
	var tags, ams, adds uint64
	for n := 0; tags < loadLeast || !l.stop.Load(); n = (n + 1) % loadWindow {
		if err := window[n].Wait(l.ctx); err != nil {
			return err
		}
		switch (tags + ams + adds) % 5 {
		case 0, 1:
			bufs[n] = loadMessage(bufs[n], i, tags)
			window[n] = e.TagSend(bufs[n], ucp.Tag(i))
			tags++
		case 2, 3:
			bufs[n] = loadMessage(bufs[n], i, ams)
			var header [8]byte
			binary.LittleEndian.PutUint64(header[:], i)
			window[n] = e.AMSend(1, header[:], bufs[n])
			ams++
		default:
			adds++
			k.PutUint64(adds, 8*(1+i))
			e.Fence()
			window[n] = count.Add(1)
		}
	}
	if err := ucp.WaitAll(l.ctx, window[:], nil); err != nil {
		return err
	}
	if err := th.Flush().Wait(l.ctx); err != nil {
		return err
	}
	last := binary.LittleEndian.AppendUint64(nil, tags)
	last = binary.LittleEndian.AppendUint64(last, ams)
	last = binary.LittleEndian.AppendUint64(last, adds)
	if err := e.TagSend(last, ucp.Tag(i)|loadLast).Wait(l.ctx); err != nil {
		return err
	}
	return th.Close()
}

// open sends each message through a Thread of its own.
func (l *load) open(i uint64) error {
	var tags uint64
	for done := false; !done; {
		th, err := l.a.NewThread()
		if err != nil {
			return err
		}
		p, tag := loadMessage(nil, i, tags), ucp.Tag(i)
		if done = tags >= loadLeast/10 && l.stop.Load(); done {
			p, tag = binary.LittleEndian.AppendUint64(nil, tags), tag|loadLast
			p = append(p, make([]byte, 16)...)
		}
		if err := l.ep.On(th).TagSendSync(p, tag).Wait(l.ctx); err != nil { // received before the next is sent
			return err
		}
		if err := th.Close(); err != nil {
			return err
		}
		tags++
	}
	return nil
}

// loadMessage returns message n of a sender, in p if it is long enough.
func loadMessage(p []byte, sender, n uint64) []byte {
	size := loadSize(sender, n)
	p = append(p[:0], loadPattern[n%256:][:size]...)
	binary.LittleEndian.PutUint64(p, n)
	return p
}

// handle takes an active message. Its data may come later, its number is in the order.
func (l *load) handle(m *ucp.AM) {
	i := binary.LittleEndian.Uint64(m.Header)
	n := l.ams[i]
	l.ams[i]++
	if !m.Rendezvous {
		l.check(m.Data, i, n)
		return
	}
	p := make([]byte, m.Len)
	l.fetches = append(l.fetches, loadFetch{m.Retain().RecvInto(p), i, n, p})
}

// check compares message n of a sender.
func (l *load) check(p []byte, sender, n uint64) {
	l.Helper()
	if len(p) < 8 || len(p) != loadSize(sender, n) || binary.LittleEndian.Uint64(p) != n || !bytes.Equal(p[8:], loadPattern[n%256+8:][:len(p)-8]) {
		l.Errorf("sender %d: message %d is wrong: %d bytes, begins with % x", sender, n, len(p), p[:min(len(p), 8)])
	}
}

// receive receives until the last message of each sender, and compares the counts.
func (l *load) receive(b *ucp.Worker) {
	var bufs [loadWindow][70_000]byte
	var recvs [loadWindow]ucp.RecvRequest
	post := func(k int) { recvs[k] = b.TagRecv(bufs[k][:], 0, 0) }
	for k := range recvs {
		post(k)
	}
	adds := uint64(0)
	for k, left := 0, loadSenders+loadOpeners; left > 0; k = (k + 1) % loadWindow {
		m, err := recvs[k].Wait(l.ctx)
		require.NoError(l, err)
		i, p := uint64(m.Tag&^loadLast), bufs[k][:m.Len]
		if m.Tag&loadLast == 0 {
			l.check(p, i, l.tags[i])
			l.tags[i]++
		} else {
			left--
			assert.Equal(l, binary.LittleEndian.Uint64(p), l.tags[i], "tag messages of sender %d", i)
			assert.Equal(l, binary.LittleEndian.Uint64(p[8:]), l.ams[i], "active messages of sender %d", i)
			if n := binary.LittleEndian.Uint64(p[16:]); n > 0 {
				assert.Equal(l, n, l.mem.Load64(int(8*(1+i))), "last put of sender %d", i)
				adds += n
			}
		}
		post(k)
		for len(l.fetches) > 0 && (left == 0 || l.fetches[0].r.Done()) {
			f := l.fetches[0]
			l.fetches = l.fetches[1:]
			_, err := f.r.Wait(l.ctx)
			require.NoError(l, err)
			l.check(f.p, f.sender, f.n)
		}
		require.False(l, l.Failed())
	}
	assert.Equal(l, adds, l.mem.Load64(0))
	for range 1000 {
		b.Progress()
	}
	for _, r := range recvs {
		assert.False(l, r.Done(), "more than was sent")
		r.Cancel()
		r.Drop()
	}
	l.Logf("tag messages %v, active messages %v, adds %d", l.tags, l.ams, adds)
}
