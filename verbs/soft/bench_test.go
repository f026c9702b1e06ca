package soft

import (
	"testing"

	"github.com/goucx/goucx/verbs"
)

// inlineSend is a send of eight bytes; every 16th asks for a completion.
func inlineSend(i int) (wr verbs.SendWR) {
	wr = verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendInline, InlineLen: 8}
	if i%16 == 0 {
		wr.Flags |= verbs.SendSignaled
	}
	return wr
}

// await polls until a receive has ended.
func (e *end) await(wc []verbs.WC, o *end) {
	for {
		n := e.cq.Poll(wc)
		for i := range n {
			if wc[i].Op == verbs.WCRecv {
				return
			}
		}
		if o != nil {
			if n := o.cq.Poll(wc); n > 0 && wc[0].Op == verbs.WCRecv {
				panic("a receive of the wrong end")
			}
		}
	}
}

// BenchmarkPingPong is the time of one message of eight bytes over RC, one thread
// driving both ends: the cost of both sides.
func BenchmarkPingPong(b *testing.B) {
	b.Run(LinkInproc, func(b *testing.B) { pingPong(b, Config{Link: LinkInproc, Engine: EngineInline}) })
	b.Run(LinkUDP, func(b *testing.B) { pingPong(b, Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline}) })
}

func pingPong(b *testing.B, c Config) {
	x, y := pair(b, New(c), 64)
	var wc [1]verbs.WC
	wrs := make([]verbs.SendWR, 1)
	rr := []verbs.RecvWR{{NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{y.sge(0, 8)}}}
	rx := []verbs.RecvWR{{NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{x.sge(0, 8)}}}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N / 2 {
		wrs[0] = inlineSend(i)
		y.qp.PostRecv(rr)
		x.qp.PostSend(wrs)
		y.await(wc[:], x)
		x.qp.PostRecv(rx)
		y.qp.PostSend(wrs)
		x.await(wc[:], y)
	}
}

// BenchmarkPingPongTwo is the same between two goroutines.
func BenchmarkPingPongTwo(b *testing.B) {
	b.Run(LinkInproc, func(b *testing.B) { pingPongTwo(b, Config{Link: LinkInproc}) })
	b.Run(LinkUDP, func(b *testing.B) { pingPongTwo(b, Config{Link: LinkUDP, Addr: localhost}) })
}

func pingPongTwo(b *testing.B, c Config) {
	x, y := pair(b, New(c), 64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wc [1]verbs.WC
		wrs := make([]verbs.SendWR, 1)
		rr := []verbs.RecvWR{{NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{y.sge(0, 8)}}}
		y.qp.PostRecv(rr)
		for i := range b.N / 2 {
			wrs[0] = inlineSend(i)
			y.await(wc[:], nil)
			y.qp.PostRecv(rr)
			y.qp.PostSend(wrs)
		}
	}()
	var wc [1]verbs.WC
	wrs := make([]verbs.SendWR, 1)
	rx := []verbs.RecvWR{{NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{x.sge(0, 8)}}}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N / 2 {
		wrs[0] = inlineSend(i)
		x.qp.PostRecv(rx)
		x.qp.PostSend(wrs)
		x.await(wc[:], nil)
	}
	<-done
}
