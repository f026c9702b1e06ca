package soft

import (
	"errors"
	"runtime"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// The engine's symbols, until it is here.

type engine struct {
	qps    qpTable
	gid    verbs.GID
	lid    uint16
	counts counts
}

const defaultPKey = 0xffff

// NewSwitch makes a switch.
func NewSwitch() *Switch { return new(Switch) }

type qpTable struct{ all []*qp }

func (t *qpTable) each(f func(*qp)) {
	for _, q := range t.all {
		f(q)
	}
}

type qp struct {
	d              *device
	pd             *pd
	sendCQ, recvCQ *cq
	srq            *srq
	counts         counts
	rq             recvRing
}

func (q *qp) QPN() verbs.QPN                                { return 0 }
func (q *qp) Modify(*verbs.QPAttr, verbs.AttrMask) error    { return ucs.ErrUnsupported }
func (q *qp) Query() verbs.QPAttr                           { return verbs.QPAttr{} }
func (q *qp) PostSend([]verbs.SendWR) (int, ucs.Status)     { return 0, ucs.Unsupported }
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, ucs.Status) { return 0, ucs.Unsupported }
func (q *qp) Close() error {
	return q.d.dropped(q)
}

func (d *device) start() error                     { return nil }
func (d *device) stop() error                      { return nil }
func (d *device) progress()                        {}
func (d *device) progressInto(*cq, []verbs.WC) int { return 0 }
func (d *device) sink(*cq, *verbs.WC) bool         { return false }
func (d *device) quiesce()                         {}
func (d *device) newQP(p *pd, c *verbs.QPConfig) (*qp, error) {
	q := &qp{d: d, pd: p, sendCQ: c.SendCQ.(*cq), recvCQ: c.RecvCQ.(*cq)}
	if c.SRQ != nil {
		q.srq = c.SRQ.(*srq)
	}
	return q, nil
}

type route struct{}

func (d *device) resolve(*verbs.AHAttr) (route, error) { return route{}, errors.New("no link") }

// Switch connects the in-process devices of a program.
type Switch struct{}

func relax(int) { runtime.Gosched() }
