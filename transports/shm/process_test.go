package shm

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

func encodeAddress(a uct.Address) string {
	return hex.EncodeToString(a.Device) + " " + hex.EncodeToString(a.Iface)
}

func decodeAddress(s string) (a uct.Address) {
	d, i, _ := strings.Cut(s, " ")
	a.Device, _ = hex.DecodeString(d)
	a.Iface, _ = hex.DecodeString(i)
	return a
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, "second process:", err)
		os.Exit(1)
	}
	return v
}

func openRole(h uct.Handler) *iface {
	d := must(Component().OpenDomain(uct.DomainInfo{Component: transportName, Name: transportName}, uct.DomainConfig{}))
	return must(d.OpenIface(uct.IfaceInfo{Transport: transportName, Device: deviceName}, uct.IfaceConfig{Handler: h, Worker: uct.UUID{2}})).(*iface)
}

// roleReceive counts messages and sends each value on doubled, until it is killed.
func roleReceive(say func(string), hear func() string) {
	var r recorder
	f := openRole(&r)
	var back uct.Endpoint
	type message struct{ header, value uint64 }
	var answers []message
	r.onAM = func(d uct.Desc, b []byte) {
		if back != nil && len(b) == 8 {
			answers = append(answers, message{d.Header, 2 * binary.LittleEndian.Uint64(b)})
		}
	}
	say(encodeAddress(addressOf(f)))
	peer := decodeAddress(hear())
	for i := 0; ; i++ {
		f.Progress(64)
		for len(answers) > 0 && back.AMUint64(2, answers[0].header, answers[0].value) == ucs.OK {
			answers = answers[1:]
		}
		if back == nil && r.n > 0 {
			back = must(f.NewEndpoint(peer))
		}
		if i&0xfff == 0 {
			cpu.Yield()
		}
	}
}

// roleSend sends numbered messages of mixed sizes to a receiver as long as it lives.
func roleSend(say func(string), hear func() string) {
	var r recorder
	f := openRole(&r)
	e := must(f.NewEndpoint(decodeAddress(hear())))
	var id uint64
	must(fmt.Sscan(hear(), &id))
	buf := make([]byte, f.attr.AM.Short)
	say("sending")
	for i := uint64(0); ; {
		n := 8 + int(i*37%1500)
		binary.LittleEndian.PutUint64(buf, i)
		switch s := e.AMShort(1, id, buf[:n]); s {
		case ucs.OK:
			i++
		case ucs.NoResource:
			f.Progress(64)
			cpu.Yield()
		default:
			must(0, s.Err())
		}
	}
}

func TestTwoProcesses(t *testing.T) {
	var r recorder
	f := openTest(t, &r)
	p := start(t, "receive")
	e, err := f.NewEndpoint(decodeAddress(p.hear()))
	require.NoError(t, err)
	p.say(encodeAddress(addressOf(f)))
	until(t, func() bool { e.AMUint64(1, 0, 1); return r.n > 0 }, f) // the way back is open
	var last uint64
	r.onAM = func(d uct.Desc, b []byte) {
		if d.Header > 0 {
			require.Equal(t, last+1, d.Header)
			require.Equal(t, 2*d.Header, binary.LittleEndian.Uint64(b))
			last = d.Header
		}
	}
	for i := uint64(1); i <= 5000; {
		if e.AMUint64(1, i, i) == ucs.OK {
			i++
		}
		until(t, func() bool { return last+100 > i }, f)
	}
	until(t, func() bool { return last == 5000 }, f)
}

// TestKilledPeer: each side notices at once; what the survivor mapped is gone.
func TestKilledPeer(t *testing.T) {
	before := countFDs(t)
	var r recorder
	f := openTest(t, &r)
	p := start(t, "receive")
	e, err := f.NewEndpoint(decodeAddress(p.hear()))
	require.NoError(t, err)
	p.say(encodeAddress(addressOf(f)))
	e.AMUint64(1, 0, 1)
	e.AMUint64(1, 0, 1)
	until(t, func() bool { e.AMUint64(1, 0, 1); return r.n > 0 }, f)
	for e.AMUint64(1, 0, 1) == ucs.OK {
	}
	died := ucs.Now()
	p.kill()
	until(t, func() bool { return len(r.failures) > 0 }, f)
	require.Less(t, ucs.Now().Sub(died), 10*time.Second) // milliseconds, where the machine is idle
	require.Equal(t, e, r.failures[0].Endpoint)
	require.ErrorIs(t, r.failures[0].Err, ucs.ErrPeerFailed)
	require.Equal(t, ucs.PeerFailed, e.AMUint64(1, 0, 1))
	require.Equal(t, ucs.PeerFailed, e.PendingAdd(1))
	e.Close()
	until(t, func() bool { return f.Len() == 0 }, f)
	require.NoError(t, f.Close())
	require.Equal(t, before, countFDs(t), "descriptors")
}

func countFDs(t testing.TB) int {
	r, w, err := os.Pipe() // has the runtime open its own poller, if it has not
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
	ds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(ds)
}

// TestManySenders has several processes send to one receiver while one more is
// stopped in the middle and one is killed: the others' messages all come, in order.
func TestManySenders(t *testing.T) {
	const senders = 4
	var r recorder
	f := openTest(t, &r)
	next := make([]uint64, senders+2)
	r.onAM = func(d uct.Desc, b []byte) {
		i := binary.LittleEndian.Uint64(b)
		require.Equal(t, next[d.Header], i, "sender %d", d.Header)
		require.Len(t, b, 8+int(i*37%1500))
		next[d.Header]++
	}
	ps := make([]*process, senders+2)
	for i := range ps {
		ps[i] = start(t, "send")
		ps[i].say(encodeAddress(addressOf(f)))
		ps[i].say(fmt.Sprint(i))
		require.Equal(t, "sending", ps[i].hear())
	}
	all := func(n uint64) func() bool {
		return func() bool {
			for _, k := range next[:senders] {
				if k < n {
					return false
				}
			}
			return true
		}
	}
	n := uint64(20_000)
	if testing.Short() {
		n = 2_000
	}
	until(t, all(n), f)
	require.NoError(t, ps[senders].cmd.Process.Signal(syscall.SIGSTOP))
	ps[senders+1].kill()
	until(t, all(2*n), f)
	until(t, func() bool { return len(r.failures) == 1 }, f)
	require.ErrorIs(t, r.failures[0].Err, ucs.ErrPeerFailed)
	require.Nil(t, r.failures[0].Endpoint)
}

// hellos by hand: what a buggy or foreign peer may send.
func TestDamagedHelloIsRefused(t *testing.T) {
	var r recorder
	f := openTest(t, &r)
	before := countFDs(t)
	seg, err := shmem.Create("goucx-test", 2*ringStride(f.layout))
	require.NoError(t, err)
	defer seg.Close()
	small, err := shmem.Create("goucx-test", 4096)
	require.NoError(t, err)
	defer small.Close()
	unsealed, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer unsealed.Close()
	ev, err := shmem.NewWakePipe()
	require.NoError(t, err)
	defer ev.Close()
	good := connMsg{kind: kindOpen, pair: 3, conn: 1, cells: uint32(f.layout.Cells), bulk: uint32(f.layout.Bulk)}
	wild := good
	wild.cells = 1 << 31
	later, requires := good.append(nil), good.append(nil)
	later[4]++
	requires[5] = 1 << 2
	for name, tc := range map[string]struct {
		b    []byte
		fds  []int
		want string
	}{
		"later version":     {later, nil, "connection message of shm has version 5, this program knows version 4"},
		"later, longer":     {append(later, make([]byte, 100)...), nil, "has version 5, this program knows version 4"},
		"required feature":  {requires, nil, "version 4 requires feature 2, which this program (version 4) does not know"},
		"garbage":           {[]byte("GET / HTTP/1.1\r\n\r\nHost: somewhere"), nil, "not goucx's"},
		"no descriptors":    {good.append(nil), nil, "0 descriptors"},
		"geometry":          {wild.append(nil), []int{seg.FD(), seg.FD(), ev.Share()}, "cells"},
		"truncated segment": {good.append(nil), []int{small.FD(), small.FD(), ev.Share()}, "size"},
		"unsealed segment":  {good.append(nil), []int{int(unsealed.Fd()), small.FD(), ev.Share()}, "segment"},
		"no ring in it":     {good.append(nil), []int{seg.FD(), small.FD(), ev.Share()}, "not a ring"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := shmem.Dial(f.socketName(f.name))
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Send(tc.b, tc.fds...))
			var b [maxConnMsg]byte
			var n int
			until(t, func() bool { n, _, err = c.Recv(b[:]); return err != shmem.ErrWouldBlock }, f)
			require.NoError(t, err)
			h, err := parseConnMsg(b[:n])
			require.NoError(t, err)
			require.Equal(t, kindReject, h.kind)
			require.Contains(t, h.reason, tc.want)
		})
	}
	require.Zero(t, f.Len())
	require.Equal(t, before, countFDs(t)-6, "descriptors")
}

// A peer of another version refuses this side's OPEN: the endpoint fails, and the reason names both
// versions.
func TestRefusedByAnotherVersion(t *testing.T) {
	var r recorder
	f, other := openTest(t, &r), openTest(t, new(recorder))
	e := connectTest(t, f, other)
	require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
	var sock *shmem.Conn
	until(t, func() bool {
		c, err := other.listener.Accept() // in place of other
		sock = c
		return err == nil
	}, f)
	defer sock.Close() //nolint:errcheck // the test is over
	reject := other.newConnMsg(kindReject, 0).append(nil)
	reject[4]++
	require.NoError(t, sock.Send(reject))
	until(t, func() bool { return len(r.failures) == 1 }, f)
	require.ErrorIs(t, r.failures[0].Err, ucs.ErrUnsupported)
	require.ErrorContains(t, r.failures[0].Err, "connection message of shm has version 5, this program knows version 4")
}

// TestGarbageInTheRingFailsThatPeerAlone writes into a live connection.
func TestGarbageInTheRingFailsThatPeerAlone(t *testing.T) {
	var ra, rb, rc recorder
	a, b, c := openTest(t, &ra), openTest(t, &rb), openTest(t, &rc)
	e, good := connectTest(t, a, b), connectTest(t, c, b)
	e.AMShort(1, 0, nil)
	good.AMShort(1, 0, nil)
	until(t, func() bool { return rb.n == 2 }, a, b, c)
	m := e.pairs[0].seg.Bytes()
	cells := 384 // behind the control block
	binary.NativeEndian.PutUint64(m[cells+2*64:], 2|60<<40)
	until(t, func() bool { return len(rb.failures) == 1 }, b)
	require.ErrorContains(t, rb.failures[0].Err, "garbage")
	require.Equal(t, ucs.OK, good.AMShort(1, 0, nil))
	until(t, func() bool { return rb.n == 3 }, b)
	until(t, func() bool { return len(ra.failures) == 1 }, a) // it hears the hang-up
	require.Equal(t, ucs.PeerFailed, e.AMShort(1, 0, nil))
}
