//go:build linux

package test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// A streamer's message has its number in the first and the last 8 bytes, and between them bytes that depend on the
// sender alone, so that preparing one costs little beside sending it.
const streamHead = 16 // of messageHead's form: sender, checksum, number

// streamBody fills what does not change from message to message.
func streamBody(p []byte, sender uint32) {
	if len(p) > streamHead+8 {
		fill(p, sender, 0)
	}
}

// streamNumber makes p message n of sender.
func streamNumber(p []byte, sender uint32, n uint64) {
	binary.LittleEndian.PutUint64(p[len(p)-8:], n)
	binary.LittleEndian.PutUint64(p, uint64(sender)<<48|n)
}

// roleStreamer sends messages of one length to a receiver as fast as it can, with at most sendWindow under way, until it
// receives a line. It then prints the number of messages.
func roleStreamer(p *parent) {
	n := must(newNode(ucp.ThreadSingle, patience))
	var id uint32
	var size, window int
	check(scanLine(p.hear(), &id, &size, &window))
	e := must(n.connect(p.hear()))
	ctx := context.Background()
	bufs, sent := make([][]byte, window), make([]ucp.Request, window)
	for i := range bufs {
		bufs[i] = make([]byte, size)
		streamBody(bufs[i], id)
	}
	p.say("ready")
	p.hear()
	count := uint64(0)
	for {
		if count%8 == 0 {
			if _, ok := p.heard(); ok {
				break
			}
		}
		i := count % uint64(window)
		check(sent[i].Wait(ctx))
		streamNumber(bufs[i], id, count)
		sent[i] = e.TagSend(bufs[i], 1)
		count++
	}
	check(ucp.WaitAll(ctx, sent, nil))
	check(e.Flush().Wait(ctx))
	p.say(count)
	p.hear()
	check(n.x.Close())
}

// TestFairness: of processes that all send to one receiver as fast as they can, the slowest gets at least half as many
// messages through as the median one, be they eager or fetched. There are more of them than processors, and more
// than a pass of the receiver polls.
func TestFairness(t *testing.T) {
	withinHost(t)
	counts, sizes, during := []int{12}, []int{16, 64 << 10}, time.Second
	if long() {
		counts, sizes, during = []int{4, 8, 64}, []int{16, 1 << 10, 64 << 10, 1 << 20}, 10*time.Second
	}
	for _, count := range counts {
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%d processes, %d bytes", count, size), func(t *testing.T) { fairness(t, count, size, during) })
		}
	}
}

func fairness(t *testing.T, count, size int, during time.Duration) {
	window := max(2, min(sendWindow, (1<<20)/size))
	n := open(t, ucp.ThreadSingle)
	ctx := context.Background()
	senders := make([]*process, count)
	want := make([][]byte, count)
	for i := range senders {
		senders[i] = start(t, "streamer")
		senders[i].say(i, size, window)
		senders[i].say(n.address())
		want[i] = make([]byte, size)
		streamBody(want[i], uint32(i))
	}
	for _, p := range senders {
		p.expect("ready")
	}
	bufs, recvs := make([][]byte, 64), make([]ucp.RecvRequest, 64)
	for i := range recvs {
		bufs[i] = make([]byte, size)
		recvs[i] = n.w.TagRecv(bufs[i], 1, allBits)
	}
	next, turn := make([]uint64, count), 0
	take := func() (did int) {
		did = n.w.Progress()
		for recvs[turn].Done() {
			m, err := recvs[turn].Wait(ctx)
			require.NoError(t, err)
			b := bufs[turn]
			require.Equal(t, size, m.Len)
			head := binary.LittleEndian.Uint64(b)
			sender, k := int(head>>48), head&(1<<48-1)
			require.Less(t, sender, count)
			require.Equal(t, next[sender], k, "of sender %d: each message once, in order", sender)
			if k%16 == 0 { // the whole of it
				streamNumber(want[sender], uint32(sender), k)
				require.True(t, slices.Equal(want[sender], b), "message %d of sender %d is damaged", k, sender)
			}
			require.Equal(t, k, binary.LittleEndian.Uint64(b[size-8:])&(1<<48-1))
			next[sender]++
			recvs[turn] = n.w.TagRecv(b, 1, allBits)
			turn = (turn + 1) % len(recvs)
			did++
		}
		return did
	}
	for _, p := range senders {
		p.say("go")
	}
	until(t, func() bool { return slices.Min(next) > 0 }, take)
	before := slices.Clone(next)
	for began := time.Now(); time.Since(began) < during; {
		take()
	}
	got := make([]int, count)
	total := 0
	for i := range got {
		got[i] = int(next[i] - before[i])
		total += got[i]
	}
	for _, p := range senders {
		p.say("stop")
	}
	for i, p := range senders {
		until(t, func() bool { return len(p.lines) > 0 }, take)
		sent, err := strconv.ParseUint(p.hear(), 10, 64)
		require.NoError(t, err)
		until(t, func() bool { return next[i] == sent }, take)
	}
	for _, p := range senders {
		p.say("close")
		until(t, func() bool { return p.cmd.ProcessState != nil || closedLines(p) }, take)
		p.ends()
	}
	slices.Sort(got)
	median := got[count/2]
	t.Logf("%.0f messages/s; of a sender: slowest %d, median %d, fastest %d (slowest %.2f of the median)",
		float64(total)/during.Seconds(), got[0], median, got[count-1], float64(got[0])/float64(median))
	require.GreaterOrEqual(t, 2*got[0], median, "messages of the slowest sender, and of the median one")
}

// closedLines reports whether the process has ended.
func closedLines(p *process) bool {
	select {
	case _, ok := <-p.lines:
		return !ok
	default:
		return false
	}
}
