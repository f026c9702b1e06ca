package verbstest

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Gates holds posts, polls and what the devices do between them to zero
// allocations. Call it from a test named TestGate...; it skips itself where the
// race detector allocates.
func Gates(t *testing.T, f Fixture) {
	if race.Enabled {
		t.Skip("allocations are not the product's under the race detector")
	}
	e := &env{TB: t, fixture: f, patience: patience}
	e.run(testCase{name: "gates", run: gates})
}

// gate has all that its operations need, made before.
type gate struct {
	from, to *qp
	wr       [1]verbs.SendWR
	rw       [1]verbs.RecvWR
	wcs      [4]verbs.WC
	bad      int
}

func gates(e *env) {
	d := e.rc(func(a, _ *setup) { a.caps.MaxInline = min(8, e.sides[0].Attr().MaxInline) })
	u, ah := e.datagrams(nil)
	inline := flagged(d.write(1), verbs.SendInline|verbs.SendSignaled)
	for name, w := range map[string]verbs.SendWR{
		"send":       request(1, verbs.OpSend, d.am.sge(0, 8)),
		"write":      d.write(1),
		"inline":     inline,
		"long write": at(request(1, verbs.OpWrite, d.am.sge(0, 10000)), d.bm, 0),
		"long send":  request(1, verbs.OpSend, d.am.sge(0, 10000)),
		"read":       at(request(1, verbs.OpRead, d.am.sge(0, 8)), d.bm, 0),
		"long read":  at(request(1, verbs.OpRead, d.am.sge(0, 10000)), d.bm, 0),
		"fetch-add":  at(request(1, verbs.OpFetchAdd, d.am.sge(0, 8)), d.bm, 0),
		"write-imm":  at(request(1, verbs.OpWriteImm, d.am.sge(0, 8)), d.bm, 0),
	} {
		if w.Flags&verbs.SendInline != 0 && d.a.Query().Caps.MaxInline < 8 {
			continue
		}
		g := &gate{from: d.a, to: d.b}
		g.wr[0], g.rw[0] = w, recvWR(1, d.bm.sge(0, 20000))
		g.hold(e, name)
	}
	g := &gate{from: u.a, to: u.b}
	g.wr[0], g.rw[0] = datagram(1, u.b, ah, u.am.sge(0, 8)), recvWR(1, u.bm.sge(0, 100))
	g.hold(e, "datagram")
	lacksGroups := e.fixture.matrix(e).Known(e.fixture.Name, "multicast/members") != ""
	if e.sides[1].Attr().MaxMcastGroups > 0 && !lacksGroups {
		u.b.attach(e.group(1))
		g.wr[0] = u.toGroup(1, e.groupAH(e.group(1)), 8)
		g.hold(e, "datagram to a group")
	}
}

// hold runs the operation until it is warm and then counts.
func (g *gate) hold(e *env, name string) {
	e.Helper()
	for range 500 {
		g.once()
	}
	assert.Zero(e, testing.AllocsPerRun(500, g.once), name)
	assert.Zero(e, g.bad, "%s: refused or failed", name)
}

func (g *gate) once() {
	w := &g.wr[0]
	takes := w.Op == verbs.OpSend || w.Op == verbs.OpSendImm || w.Op == verbs.OpWriteImm
	if takes {
		g.check(g.to.PostRecv(g.rw[:]))
	}
	g.check(g.from.PostSend(g.wr[:]))
	if takes {
		g.wait(g.to.recvCQ)
	}
	g.wait(g.from.sendCQ)
}

func (g *gate) check(n int, st ucs.Status) {
	if n != 1 || st != ucs.OK {
		g.bad++
	}
}

// wait polls c until it has something, and drives both devices by queues that
// nothing completes into.
func (g *gate) wait(c *cq) {
	for idle := 0; ; idle++ {
		n := c.Poll(g.wcs[:1])
		if n != 0 {
			if n < 0 || g.wcs[0].Status != verbs.WCSuccess {
				g.bad++
			}
			return
		}
		for _, s := range c.env.sides {
			s.idle.Poll(g.wcs[1:])
		}
		c.env.rest(idle)
	}
}
