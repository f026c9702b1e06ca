package soft_test

import (
	"fmt"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// side is a device with a connected queue pair.
type side struct {
	dev verbs.Context
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
}

// Two devices in one program: one writes into the memory of the other.
func Example() {
	p := soft.New(soft.Config{Link: soft.LinkInproc})
	a, b := open(p), open(p)
	connect(a, b)
	connect(b, a)

	target := make([]byte, 5)
	mr, err := b.pd.Register(target, verbs.MRConfig{Access: verbs.LocalWrite | verbs.RemoteWrite})
	check(err)

	wr := verbs.SendWR{ID: 7, Op: verbs.OpWrite, Flags: verbs.SendSignaled | verbs.SendInline, Remote: mr.Addr(), RKey: mr.RKey()}
	wr.InlineLen = uint8(copy(wr.Inline[:], "hello"))
	_, st := a.qp.PostSend([]verbs.SendWR{wr})
	check(st.Err())

	var wcs [1]verbs.WC
	for a.cq.Poll(wcs[:]) == 0 {
		b.cq.Poll(nil) // runs b's device; its background goroutine would too, later
	}
	fmt.Println(wcs[0].ID, wcs[0].Status, string(target))
	check(mr.Close())
	a.close()
	b.close()
	// Output: 7 success hello
}

func open(p *soft.Provider) *side {
	infos, err := p.Devices()
	check(err)
	s := new(side)
	s.dev, err = p.Open(infos[0])
	check(err)
	s.pd, err = s.dev.AllocPD()
	check(err)
	s.cq, err = s.dev.CreateCQ(verbs.CQConfig{Depth: 16})
	check(err)
	s.qp, err = s.pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.QPCaps{MaxSend: 16}})
	check(err)
	return s
}

// connect takes s's queue pair through the states; its peer is that of o.
func connect(s, o *side) {
	gid, err := o.dev.GID(1, 0)
	check(err)
	port, err := o.dev.Port(1)
	check(err)
	check(verbs.ConnectRC(s.qp, verbs.RemoteQP{
		AV: verbs.AHAttr{DGID: gid, DLID: port.LID, Port: 1}, QPN: o.qp.QPN(), MTU: port.ActiveMTU, MaxRdAtomic: 1,
		PeerFeatures: port.PeerFeatures,
	}, verbs.QPAttr{Access: verbs.RemoteWrite, MaxRdAtomic: 1, MinRNRTimer: 12, Timeout: 18, RetryCnt: 7, RNRRetry: 7}))
}

func (s *side) close() {
	check(s.qp.Close())
	check(s.cq.Close())
	check(s.pd.Close())
	check(s.dev.Close())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
