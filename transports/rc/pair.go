package rc

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// half is what a side tells of its queue pair.
type half struct {
	qpn verbs.QPN
	psn verbs.PSN // of the first packet that it sends
}

// pair is this side's half of a pair: a queue pair.
type pair struct {
	id   machine.PairID
	e    *ep
	q    queue
	mine half
	// reads: this side reads it. plain: and what arrives needs nothing but to be
	// delivered; else it waits in early.
	reads, plain bool
	early        []verbs.WC
	retired      ucs.Time // when it was; 0: it is in use
	said         ucs.Time // when the peer was told last that all sent here has arrived
	drained      bool     // the peer has told that of what it sent
	closed       bool
	doomed       bool // its queue pair is in error
}

// makePair makes a queue pair that can be connected. Nothing can be sent in it before
// openQueue.
func (f *iface) makePair(e *ep) (*pair, error) {
	c := verbs.QPConfig{
		Type: verbs.RC, SendCQ: f.sendCQ, RecvCQ: f.recvCQ, SRQ: f.srq,
		Caps: verbs.QPCaps{MaxSend: f.depth, MaxSendSGE: verbs.MaxSGE, MaxInline: verbs.InlineLen},
	}
	if err := f.stock(); err != nil {
		return nil, err
	}
	qp, err := f.pd.CreateQP(c)
	if err != nil {
		return nil, err
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	p := &pair{e: e, mine: half{qp.QPN(), verbs.PSN(binary.LittleEndian.Uint32(b[:]) & (1<<24 - 1))}}
	n := f.depth
	p.q = queue{f: f, p: p, qp: qp, most: uint32(n - spareSlots), mask: uint32(n - 1)}
	a := verbs.QPAttr{
		State: verbs.StateInit, Port: f.port,
		Access: verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic,
	}
	if err := qp.Modify(&a, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccessFlags); err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	f.qpns.add(p.mine.qpn, p)
	f.pairs++
	return p, nil
}

// openQueue makes what sending in p needs, if it is not there. A half-open connection
// does without.
func (p *pair) openQueue() error {
	f := p.q.f
	if p.q.slots != nil {
		return nil
	}
	if err := f.roomForQP(); err != nil {
		return err
	}
	p.q.slots = make([]slot, f.depth)
	f.queues++
	return nil
}

// join connects p with the peer's half, on its port.
func (p *pair) join(peer half, at *nic.PortAddress) error {
	f := p.q.f
	rd := f.d.Context().Attr()
	a := verbs.QPAttr{
		State: verbs.StateRTR, AV: at.AH(f.port), PathMTU: f.place.PathMTU(at), DestQPN: peer.qpn, RQPSN: peer.psn,
		MaxDestRdAtomic: uint8(min(rd.MaxQPRdAtomic, 16)), MinRNRTimer: minRNRTimer,
	}
	mask := verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN |
		verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
	if f.d.Context().Info().Provider == "soft" && at.Goucx { // towards a foreign peer it keeps to the specification
		a.PeerFeatures = verbs.PeerProbe | verbs.PeerGoucx
		mask |= verbs.AttrPeerFeatures
	}
	if err := p.q.qp.Modify(&a, mask); err != nil {
		return err
	}
	a = verbs.QPAttr{
		State: verbs.StateRTS, SQPSN: p.mine.psn, Timeout: f.timeoutCode, RetryCnt: f.retryCount, RNRRetry: rnrForEver,
		MaxRdAtomic: uint8(min(rd.MaxQPInitRdAtomic, 16)),
	}
	return p.q.qp.Modify(&a, verbs.AttrState|verbs.AttrSQPSN|verbs.AttrTimeout|verbs.AttrRetryCnt|verbs.AttrRNRRetry|verbs.AttrMaxRdAtomic)
}

const (
	// minRNRTimer is the code of 80 µs: how long a peer waits that found no receive.
	//
	// Source: IBTA vol. 1, table 46.
	minRNRTimer = 6
	// rnrForEver: a peer that has no receive is slow, not dead.
	rnrForEver = 7
)

// close destroys the queue pair: what is under way ends with st, what has come is
// delivered before.
func (p *pair) close(st uct.Status) {
	if p.closed {
		return
	}
	p.closed = true
	f := p.q.f
	f.flushList()
	f.salvage(p)
	if err := p.q.qp.Close(); err != nil {
		f.d.Log().Sugar().Warnf("close queue pair: %v", err)
	}
	f.qpns.remove(p.mine.qpn)
	f.last = nil
	f.pairs--
	if p.q.slots != nil {
		f.queues--
	}
	f.signaled -= p.q.signals
	p.q.signals = 0
	p.q.abandon(st)
	if p.e.released {
		f.uncount(p.e)
	}
	if p.e.left == &p.q {
		p.e.left = nil
	}
	for i := range p.early {
		f.rx.Give(uint32(p.early[i].ID))
	}
	p.early = nil
}

// salvage takes what the device has written to the receive queue: receives that
// a queue pair used are lost with it.
func (f *iface) salvage(p *pair) {
	a := verbs.QPAttr{State: verbs.StateErr}
	_ = p.q.qp.Modify(&a, verbs.AttrState) // in error already
	f.stashAll()
}

// roomForQP keeps the completion queue as large as all queues together.
func (f *iface) roomForQP() error {
	need := (f.queues + 1) * f.depth
	if need <= f.sendDepth {
		return nil
	}
	most := f.d.Context().Attr().MaxCQE
	if need > most {
		return fmt.Errorf("%d queue pairs: completions of the device: %w", f.queues+1, ucs.ErrNoResource)
	}
	n := min(most, 2*need)
	if err := f.sendCQ.Resize(n); err != nil {
		return fmt.Errorf("%d queue pairs: %w", f.queues+1, err)
	}
	f.sendDepth = n
	return nil
}

// qpnTable finds pairs by queue pair number: open addressing, at most half full.
type qpnTable struct {
	keys []verbs.QPN // 0: none
	vals []*pair
	n    int
}

func (t *qpnTable) home(k verbs.QPN) int { return int(uint32(k)*0x9e3779b1>>8) & (len(t.keys) - 1) }

// find gives the pair of that number; nil: there is none.
//
// hot: BenchmarkProgressAM.
func (t *qpnTable) find(k verbs.QPN) *pair {
	if len(t.keys) == 0 {
		return nil
	}
	for i := t.home(k); t.keys[i] != 0; i = (i + 1) & (len(t.keys) - 1) {
		if t.keys[i] == k {
			return t.vals[i]
		}
	}
	return nil
}

func (t *qpnTable) add(k verbs.QPN, p *pair) {
	if 2*(t.n+1) > len(t.keys) {
		old := *t
		size := max(16, 2*len(old.keys))
		*t = qpnTable{keys: make([]verbs.QPN, size), vals: make([]*pair, size)}
		for i, key := range old.keys {
			if key != 0 {
				t.add(key, old.vals[i])
			}
		}
	}
	i := t.home(k)
	for t.keys[i] != 0 {
		i = (i + 1) & (len(t.keys) - 1)
	}
	t.keys[i], t.vals[i] = k, p
	t.n++
}

// remove takes k out and moves up what stands behind it.
func (t *qpnTable) remove(k verbs.QPN) {
	mask := len(t.keys) - 1
	i := t.home(k)
	for t.keys[i] != k {
		if t.keys[i] == 0 {
			return
		}
		i = (i + 1) & mask
	}
	t.n--
	for j := i; ; {
		t.keys[i], t.vals[i] = 0, nil
		for {
			j = (j + 1) & mask
			if t.keys[j] == 0 {
				return
			}
			if h := t.home(t.keys[j]); (j-h)&mask >= (j-i)&mask {
				break
			}
		}
		t.keys[i], t.vals[i] = t.keys[j], t.vals[j]
		i = j
	}
}
