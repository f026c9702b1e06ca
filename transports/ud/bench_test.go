package ud

import (
	"runtime"
	"testing"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// pair is two interfaces of which each has an endpoint to the other, and has used
// it.
type pair struct {
	a, b     *node
	to, back *endpoint
	n        int
}

func newPair(t testing.TB, ns []*node) *pair {
	p := &pair{a: ns[0], b: ns[1]}
	p.to, p.back = connect(t, p.a, p.b), connect(t, p.b, p.a)
	until(t, func() bool { return p.to.AMUint64(0, 0, 0) == ucs.OK }, p.a, p.b)
	until(t, func() bool { return p.back.AMUint64(0, 0, 0) == ucs.OK }, p.a, p.b)
	until(t, func() bool { return len(p.a.got) == 1 && len(p.b.got) == 1 }, p.a, p.b)
	return p
}

// BenchmarkAM: 8 bytes there and back with one thread at both ends, one way there;
// a stream of them; one of 2 KB.
func BenchmarkAM(b *testing.B) {
	for _, link := range []string{"inproc", "udp"} {
		ps := inproc
		if link == "udp" {
			ps = loopback
		}
		b.Run(link+"/ping-pong", func(b *testing.B) { benchPingPong(b, newPair(b, nodes(b, ps(), 2))) })
		b.Run(link+"/stream", func(b *testing.B) { benchStream(b, newPair(b, nodes(b, ps(), 2)), 8) })
		b.Run(link+"/stream 2KB", func(b *testing.B) { benchStream(b, newPair(b, nodes(b, ps(), 2)), 2048) })
		b.Run(link+"/two cores", func(b *testing.B) { benchTwo(b, newPair(b, nodes(b, ps(), 2))) })
	}
}

func benchPingPong(b *testing.B, p *pair) {
	p.a.onAM = func(*uct.Desc) { p.n++ }
	p.b.onAM = func(*uct.Desc) { p.n++ }
	b.ReportAllocs()
	for b.Loop() {
		p.n = 0
		for p.to.AMUint64(1, 2, 3) != ucs.OK {
			p.a.Progress(64)
			p.b.Progress(64)
		}
		for p.n != 1 {
			p.b.Progress(64)
		}
		for p.back.AMUint64(1, 2, 3) != ucs.OK {
			p.a.Progress(64)
			p.b.Progress(64)
		}
		for p.n != 2 {
			p.a.Progress(64)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/hop")
}

func benchStream(b *testing.B, p *pair, n int) {
	p.b.onAM = func(*uct.Desc) { p.n++ }
	buf := make([]byte, n)
	sent := 0
	b.ReportAllocs()
	b.SetBytes(int64(n))
	for b.Loop() {
		for p.to.AMShort(1, 2, buf) != ucs.OK {
			p.b.Progress(64)
			p.a.Progress(64)
		}
		sent++
	}
	for p.n < sent {
		p.b.Progress(64)
		p.a.Progress(64)
	}
	for _, c := range p.b.stats.Snapshot() {
		if c.Name == "acks" {
			b.ReportMetric(float64(c.Value)/float64(sent), "acks/msg")
		}
	}
	for _, c := range p.a.stats.Snapshot() {
		if c.Name == "resent" || c.Name == "timeouts" {
			b.ReportMetric(float64(c.Value), c.Name)
		}
	}
}

// benchTwo is a ping-pong of two goroutines.
func benchTwo(b *testing.B, p *pair) {
	stop, done := make(chan struct{}), make(chan struct{})
	p.b.onAM = func(*uct.Desc) {
		for p.back.AMUint64(1, 2, 3) != ucs.OK {
		}
	}
	p.a.onAM = func(*uct.Desc) { p.n++ }
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for {
			for range 1000 {
				p.b.Progress(64)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for b.Loop() {
		p.n = 0
		for p.to.AMUint64(1, 2, 3) != ucs.OK {
			p.a.Progress(64)
		}
		for p.n == 0 {
			p.a.Progress(64)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/hop")
	close(stop)
	<-done
}

// BenchmarkProgressIdle is a pass that finds nothing.
func BenchmarkProgressIdle(b *testing.B) {
	p := newPair(b, nodes(b, inproc(), 2))
	for b.Loop() {
		p.a.Progress(64)
	}
}
