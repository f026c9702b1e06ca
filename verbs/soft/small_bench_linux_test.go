package soft

import (
	"fmt"
	"testing"

	"github.com/goucx/goucx/verbs"
)

// BenchmarkSmallStream is the time of one send of eight bytes over UDP where many are
// under way, by window and length of the lists that are posted; one thread drives
// both ends.
func BenchmarkSmallStream(b *testing.B) {
	for _, c := range []struct{ window, list int }{{32, 1}, {256, 64}} {
		b.Run(fmt.Sprintf("%d-%d", c.window, c.list), func(b *testing.B) { smallStream(b, c.window, c.list) })
	}
}

func smallStream(b *testing.B, window, list int) {
	x, y := pair(b, New(Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline}), 64)
	var wc [64]verbs.WC
	recvs := make([]verbs.RecvWR, window/2)
	for i := range recvs {
		recvs[i] = verbs.RecvWR{NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{y.sge(0, 8)}}
	}
	for range 4 {
		y.qp.PostRecv(recvs)
	}
	wrs := make([]verbs.SendWR, list)
	for i := range wrs {
		wrs[i] = inlineSend(1)
	}
	last := &wrs[list-1]
	every := max(1, window/4/list)
	posted, done, got, owed := 0, 0, 0, 0
	poll := func() {
		for i := range max(0, x.cq.Poll(wc[:])) {
			done = int(wc[i].ID)
		}
		n := max(0, y.cq.Poll(wc[:]))
		if got, owed = got+n, owed+n; owed >= len(recvs) {
			owed -= len(recvs)
			y.qp.PostRecv(recvs)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; posted < b.N; n++ {
		for posted+list-done > window {
			poll()
		}
		posted += list
		last.ID, last.Flags = uint64(posted), verbs.SendInline
		if n%every == every-1 || posted >= b.N {
			last.Flags |= verbs.SendSignaled
		}
		x.qp.PostSend(wrs)
	}
	for got < posted || done < posted {
		poll()
	}
}
