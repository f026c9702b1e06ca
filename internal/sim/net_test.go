package sim

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

var (
	a = netip.MustParseAddrPort("10.0.0.1:1001")
	b = netip.MustParseAddrPort("10.0.0.2:1002")
	c = netip.MustParseAddrPort("[fd00::3]:1003")
)

// arrival is a datagram as a node saw it.
type arrival struct {
	at   ucs.Time
	from netip.AddrPort
	n    int // its number
}

// collect attaches a node that keeps what arrives.
func collect(n *Net, at netip.AddrPort) *[]arrival {
	got := new([]arrival)
	n.Attach(at, func(from netip.AddrPort, p []byte, now ucs.Time) {
		*got = append(*got, arrival{now, from, int(binary.BigEndian.Uint32(p))})
	})
	return got
}

// sendMany sends numbered datagrams of size bytes, one each gap.
func sendMany(n *Net, from, to netip.AddrPort, count, size int, gap time.Duration) {
	p := make([]byte, size)
	for i := range count {
		n.At(Start.Add(time.Duration(i)*gap), func(ucs.Time) {
			binary.BigEndian.PutUint32(p, uint32(i))
			n.Send(from, to, p)
		})
	}
}

func numbers(as []arrival) []int {
	ns := make([]int, len(as))
	for i, a := range as {
		ns[i] = a.n
	}
	return ns
}

func upTo(n int) []int {
	ns := make([]int, n)
	for i := range ns {
		ns[i] = i
	}
	return ns
}

// TestPerfect sends over a link without faults: everything arrives once, in
// order, after exactly the latency, and the sender may use its buffer again.
func TestPerfect(t *testing.T) {
	n := New(1)
	n.SetDefault(Link{Latency: 5 * time.Microsecond})
	got := collect(n, b)
	sendMany(n, a, b, 100, 8, time.Microsecond)
	require.True(t, n.Run(1000))
	require.Equal(t, upTo(100), numbers(*got))
	for i, r := range *got {
		require.Equal(t, Start.Add(time.Duration(i)*time.Microsecond+5*time.Microsecond), r.at)
		require.Equal(t, a, r.from)
	}
	assert.Equal(t, Counts{Sent: 100, Delivered: 100}, n.Counts())
}

// TestSameTime wants events of one time in the order in which they were made.
func TestSameTime(t *testing.T) {
	n := New(1)
	var got []int
	for i := range 50 {
		n.At(Start.Add(time.Second), func(ucs.Time) { got = append(got, i) })
	}
	require.True(t, n.Run(50))
	assert.Equal(t, upTo(50), got)
	assert.Equal(t, Start.Add(time.Second), n.Now())
}

func TestTimers(t *testing.T) {
	n := New(1)
	var got []ucs.Time
	note := func(now ucs.Time) { got = append(got, now) }
	n.At(Start.Add(30), note)
	stopped := n.At(Start.Add(20), note)
	n.At(Start.Add(10), func(now ucs.Time) {
		note(now)
		stopped.Stop()
		n.At(now-5, note) // in the past: at once
	})
	late := n.At(Start.Add(1000), note)

	assert.Equal(t, 4, n.RunUntil(Start.Add(500)))
	assert.Equal(t, []ucs.Time{Start + 10, Start + 10, Start + 30}, got)
	assert.Equal(t, Start.Add(500), n.Now(), "the time is that asked for")
	next, ok := n.Next()
	assert.True(t, ok)
	assert.Equal(t, Start.Add(1000), next)

	require.True(t, n.Step())
	late.Stop()
	assert.False(t, n.Step())
	_, ok = n.Next()
	assert.False(t, ok)
	assert.Len(t, got, 4)
}

// TestRunLimit stops a network that never comes to rest.
func TestRunLimit(t *testing.T) {
	n := New(1)
	n.SetDefault(Link{Latency: 1})
	n.Attach(a, func(from netip.AddrPort, p []byte, _ ucs.Time) { n.Send(a, from, p) })
	n.Attach(b, func(from netip.AddrPort, p []byte, _ ucs.Time) { n.Send(b, from, p) })
	n.Send(a, b, []byte("ball"))
	assert.False(t, n.Run(1000))
	assert.Equal(t, 1000, n.Counts().Delivered)
}

func TestNodes(t *testing.T) {
	n := New(1)
	n.SetDefault(Link{Latency: 10})
	got := collect(n, b)
	n.Send(a, c, make([]byte, 4)) // nobody there
	n.Send(a, b, make([]byte, 4))
	n.Detach(b)
	require.True(t, n.Run(10))
	assert.Empty(t, *got)
	assert.Equal(t, Counts{Sent: 2, NoNode: 2}, n.Counts())
}

// TestPartition cuts a and b for a while; c reaches both all the time.
func TestPartition(t *testing.T) {
	n := New(1)
	n.SetDefault(Link{Latency: 10 * time.Microsecond})
	toB, toC := collect(n, b), collect(n, c)
	us := func(i int) ucs.Time { return Start.Add(time.Duration(i) * time.Microsecond) }
	n.Partition([]netip.AddrPort{b}, []netip.AddrPort{a}, us(50), us(100))
	sendMany(n, a, b, 200, 8, time.Microsecond)
	sendMany(n, a, c, 200, 8, time.Microsecond)
	require.True(t, n.Run(10_000))
	assert.Equal(t, upTo(200), numbers(*toC))
	// Sent at 40 to 49, they would arrive while it lasts.
	want := append(upTo(40), upTo(200)[100:]...)
	assert.Equal(t, want, numbers(*toB))
	assert.Equal(t, 60, n.Counts().Partitioned)
}

func TestTrace(t *testing.T) {
	n := New(1)
	n.SetDefault(Link{Latency: time.Microsecond})
	n.KeepTrace(3, func(b []byte) string { return "<" + string(b) + ">" })
	collect(n, b)
	n.Note("forgotten")
	n.Send(a, b, []byte("ping"))
	n.Send(a, c, []byte("pong"))
	n.Note("sent %d", 2)
	require.True(t, n.Step())
	assert.Equal(t, ""+
		"       0.000 sent       10.0.0.1:1001 -> [fd00::3]:1003     4 B  <pong>\n"+
		"       0.000 sent 2\n"+
		"       1.000 delivered  10.0.0.1:1001 -> 10.0.0.2:1002     4 B  <ping>\n", n.Trace())
}

// TestGroups: a datagram to a group gets to each member, in the order in which they joined, over the
// link of each; not to a node that has left.
func TestGroups(t *testing.T) {
	n := New(1)
	group := netip.MustParseAddrPort("239.0.0.1:4791")
	nodes := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.3:1"), netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:1")}
	var got []string
	for i, at := range nodes {
		n.Attach(at, func(netip.AddrPort, []byte, ucs.Time) { got = append(got, "own") })
		n.Join(group, at, func(from netip.AddrPort, b []byte, _ ucs.Time) {
			require.Equal(t, nodes[0], from)
			got = append(got, string(b)+nodes[i].Addr().String())
		})
	}
	send := func(what string) []string {
		got = nil
		n.Send(nodes[0], group, []byte(what))
		require.True(t, n.Run(100))
		return got
	}
	require.Equal(t, []string{"a10.0.0.3", "a10.0.0.1", "a10.0.0.2"}, send("a"))
	n.SetLink(nodes[0], nodes[1], Link{Loss: 1})
	n.SetLink(nodes[0], nodes[0], Link{Latency: 1})
	require.Equal(t, []string{"b10.0.0.2", "b10.0.0.3"}, send("b"))
	n.Send(nodes[0], group, []byte("c"))
	for _, at := range nodes {
		n.Leave(group, at)
	}
	got = nil
	require.True(t, n.Run(100))
	require.Empty(t, got, "they left")
	require.Empty(t, send("d"))
	require.Equal(t, 2+1, n.Counts().NoNode)
}
