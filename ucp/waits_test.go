package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

// waitsOf is what w reports of its connections: the most of each.
func waitsOf(w *Worker, least uct.WaitKind) (endpoints, sources uct.WaitKind) {
	for _, wi := range w.t.ifaces {
		wi.ReportWaits(least, func(ep uct.Endpoint, source uint32, waits uct.WaitKind) {
			if ep != nil {
				endpoints = max(endpoints, waits)
			} else {
				sources = max(sources, waits)
			}
		})
	}
	return endpoints, sources
}

// A worker reports for which connections it owes or awaits an answer, and for the end
// of which it waits, as long as it does and no longer.
func TestReportWaits(t *testing.T) {
	const not, end, answer = uct.WaitNone, uct.WaitForClose, uct.WaitForReply
	for _, transport := range []string{"rc", "ud"} { // put, get and atomics by the device, and by messages
		p := newSWPair(t, transport, 64)
		require.NoError(t, p.e.TagSend(nil, 1).Wait(p.ctx))
		want := func(w *Worker, least, endpoints, sources uct.WaitKind) {
			t.Helper()
			e, s := waitsOf(w, least)
			require.Equal(t, endpoints, e, "%s: of endpoints", transport)
			require.Equal(t, sources, s, "%s: of sources", transport)
		}
		rested := func() {
			t.Helper()
			want(p.a, end, not, not)
			want(p.b, end, not, not)
		}
		rested()
		for _, send := range []func() Request{
			func() Request { return p.e.TagSendSync([]byte{1}, 2) },
			func() Request { return p.e.TagSend(make([]byte, 1<<20), 2) },
		} {
			r := send()
			p.until(func() bool { _, s := waitsOf(p.b, end); return s != not })
			want(p.a, end, answer, not)
			want(p.b, end, not, answer)
			got := p.b.TagRecv(make([]byte, 1<<20), 2, ^Tag(0))
			p.until(func() bool { return r.Done() && got.Done() })
			rested()
		}
		tied := p.a.TagRecv(nil, 3, ^Tag(0)).Tie(p.e)
		want(p.a, end, end, not)
		want(p.a, answer, not, not)
		tied.Cancel()
		rested()
		if transport == "ud" {
			r := p.k.Get(make([]byte, 8), 0)
			for waits := not; waits == not; waits, _ = waitsOf(p.a, end) { // it may find the async goroutine inside, and be sent later
				p.a.Progress()
			}
			want(p.a, end, answer, not)
			p.must(r)
			rested()
		}
	}
}

// A receive that begins to wait for the end of connections ends a sleep in which the ifaces would not
// check their peers in time, though no goroutine waits for the receive.
func TestTieEndsUncheckedSleep(t *testing.T) {
	p := newSWPair(t, "rc", 64)
	for name, tie := range map[string]func(RecvRequest) RecvRequest{
		"one endpoint":  func(r RecvRequest) RecvRequest { return r.Tie(p.e) },
		"all endpoints": RecvRequest.TieAny,
	} {
		p.a.t.polling.sleeper.unchecked = true
		r := tie(p.a.TagRecv(nil, 3, ^Tag(0)))
		require.False(t, p.a.t.polling.sleeper.unchecked, name)
		require.True(t, p.a.t.polling.lowerSignal(), name)
		r.Cancel()
	}
}
