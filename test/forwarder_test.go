//go:build linux

package test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// harm is what a forwarder does to UDP packets: chances between 0 and 1.
type harm struct {
	drop, corrupt, replay, reorder float64
}

// forwarder carries the IP packets between the TUN interfaces of two hosts. It drops,
// corrupts, replays and reorders UDP packets. The seed decides what happens to the
// n-th packet of a direction.
type forwarder struct {
	harm   harm
	ways   [2]*way
	closed atomic.Bool
	ended  sync.WaitGroup
}

// way is one direction.
type way struct {
	f        *forwarder
	from, to *os.File
	r        *rand.Rand
	old      [history][]byte // the last packets, whole
	count    int
	held     []*heldPacket
	// What happened.
	packets, bytes, dropped, corrupted, replayed, reordered int
	mu                                                      sync.Mutex
}

const (
	history = 512
	// heldBy is the most packets that pass one which is reordered, heldFor the time
	// after which it goes in any case.
	heldBy  = 8
	heldFor = 2 * time.Millisecond
)

type heldPacket struct {
	b     []byte
	after int // packets that pass it
	until time.Time
}

// newForwarder makes a TUN interface on each of two hosts, with the addresses
// 10.9.1.1 and 10.9.1.2, and forwards between them until the test ends.
func newForwarder(t testing.TB, n *network, h harm, seed uint64) *forwarder {
	t.Helper()
	f := &forwarder{harm: h}
	var ends [2]*os.File
	for i := range ends {
		n.on(i, func() {
			ends[i] = openTUN(t, "wire")
			n.ip(fmt.Sprintf("addr add 10.9.1.%d/24 dev wire", i+1))
			n.ip("link set wire up mtu 1500")
		})
	}
	for i := range f.ways {
		f.ways[i] = &way{f: f, from: ends[i], to: ends[1-i], r: rand.New(rand.NewPCG(seed, uint64(i)))}
		f.ended.Go(f.ways[i].run)
	}
	t.Cleanup(func() {
		f.closed.Store(true)
		for _, e := range ends {
			require.NoError(t, e.Close())
		}
		f.ended.Wait()
	})
	return f
}

// openTUN makes a TUN interface in the network namespace of the calling thread.
func openTUN(t testing.TB, name string) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		t.Skipf("the system gives no TUN interface: %v", err)
	}
	require.NoError(t, err)
	r, err := unix.NewIfreq(name)
	require.NoError(t, err)
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	require.NoError(t, unix.IoctlIfreq(fd, unix.TUNSETIFF, r))
	return os.NewFile(uintptr(fd), name)
}

// run forwards until the interface is closed.
func (w *way) run() {
	b := make([]byte, 1<<16)
	for {
		wait := time.Time{}
		if len(w.held) > 0 {
			wait = w.held[0].until
			for _, h := range w.held {
				if h.until.Before(wait) {
					wait = h.until
				}
			}
		}
		_ = w.from.SetReadDeadline(wait)
		k, err := w.from.Read(b)
		switch {
		case err == nil:
			w.forward(b[:k])
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.release(0)
		case w.f.closed.Load():
			return
		default:
			panic(err)
		}
	}
}

// forward does to a packet what chance says.
func (w *way) forward(p []byte) {
	udp := len(p) > ipv4Len+udpLen && p[0] == 0x45 && p[9] == unix.IPPROTO_UDP
	drop, corrupt, replay, reorder := w.r.Float64(), w.r.Float64(), w.r.Float64(), w.r.Float64()
	bits, which := w.r.Uint64(), w.r.IntN(history)
	if !udp {
		w.write(p)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.packets++
	w.bytes += len(p)
	w.old[w.count%history] = append(w.old[w.count%history][:0], p...)
	w.count++
	if replay < w.f.harm.replay && which < w.count {
		w.replayed++
		w.write(w.old[which])
	}
	switch {
	case drop < w.f.harm.drop:
		w.dropped++
	case corrupt < w.f.harm.corrupt:
		w.corrupted++
		w.write(damaged(p, bits))
	case reorder < w.f.harm.reorder:
		w.reordered++
		w.held = append(w.held, &heldPacket{append([]byte(nil), p...), 1 + int(bits%heldBy), time.Now().Add(heldFor)})
		return
	default:
		w.write(p)
	}
	w.release(1)
}

// release writes what others have passed, or was held for long. passed is how many
// packets have passed all.
func (w *way) release(passed int) {
	now, rest := time.Now(), w.held[:0]
	for _, h := range w.held {
		if h.after -= passed; h.after <= 0 || now.After(h.until) {
			w.write(h.b)
			continue
		}
		rest = append(rest, h)
	}
	w.held = rest
}

// write writes a packet. One that the interface has no room for is lost.
func (w *way) write(p []byte) { _, _ = w.to.Write(p) }

const ipv4Len, udpLen = 20, 8

// damaged returns a copy of an IPv4 packet with one to three flipped bits behind the
// UDP header. The UDP checksum fits, so that only the receiver's own check finds it.
func damaged(p []byte, r uint64) []byte {
	p = append([]byte(nil), p...)
	data := p[ipv4Len+udpLen:]
	for range 1 + r&3%3 {
		r = r*6364136223846793005 + 1442695040888963407
		data[r>>33%uint64(len(data))] ^= 1 << (r >> 29 & 7)
	}
	u := p[ipv4Len:]
	binary.BigEndian.PutUint16(u[6:], 0)
	sum := uint32(unix.IPPROTO_UDP) + uint32(len(u))
	for _, b := range [][]byte{p[12:ipv4Len], u} {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) > 0 {
			sum += uint32(b[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(u[6:], max(uint16(^sum), 1))
	return p
}
