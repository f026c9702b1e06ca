package rc

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// qpInfo is the endpoint information of a QP that connection messages carry.
type qpInfo struct {
	qpn verbs.QPN
	psn verbs.PSN // first PSN that the QP sends
}

// connQP is a QP of a connection, with the state that the transport keeps about it.
//
// A connection uses one QP at a time in each direction, and moves to another one when it
// resumes after a suspension. Each side retires a QP when neither its sending nor its receiving
// uses it any more; migrate.go describes the rest of its life.
type connQP struct {
	id    machine.PairID
	e     *ep
	q     sendQueue
	local qpInfo
	life  qpLife
	// fastRecv is set while the QP's messages need nothing but delivery. Otherwise they are kept in
	// connQP.outOfOrder until the QP is read.
	fastRecv      bool
	outOfOrder    []verbs.WC
	retiredAt     ucs.Time // when the QP was retired
	drainedSentAt ucs.Time // when the last DRAINED was sent
	peerDrained   bool     // the peer has sent DRAINED, maybe before this side has retired the QP
	inError       bool     // an operation has failed: the QP is in the error state, in any state of its life
	failedID      uint32   // the first operation that failed, with inError
}

// qpLife is the state of a connQP:
//
//	qpUnread --qpRead--> qpReading --qpRetire--> qpDraining --qpClose--> qpClosed
//
// A QP whose messages this side never reads, or that a failure destroys, leaves out the states
// between. The two directions of a connection switch independently, so a QP may carry sends in
// each state before qpDraining.
type qpLife uint8

const (
	qpUnread   qpLife = iota // its messages wait for the switch-over marker on the previous QP
	qpReading                // its messages are delivered
	qpDraining               // it is retired, and acknowledges what the peer retransmits
	qpClosed                 // it is destroyed
	numQPLives
)

// qpChange is an event in the life of a connQP.
type qpChange uint8

const (
	qpRead   qpChange = iota // the receiving direction switches to it
	qpRetire                 // neither direction uses it any more
	qpClose                  // it is destroyed
	numQPChanges
)

// nextQPLife is the table of transitions. A change that has no effect leads to the same state.
var nextQPLife = [numQPLives][numQPChanges]qpLife{
	qpUnread:   {qpRead: qpReading, qpRetire: qpDraining, qpClose: qpClosed},
	qpReading:  {qpRead: qpReading, qpRetire: qpDraining, qpClose: qpClosed},
	qpDraining: {qpRead: qpDraining, qpRetire: qpDraining, qpClose: qpClosed},
	qpClosed:   {qpRead: qpClosed, qpRetire: qpClosed, qpClose: qpClosed},
}

// step applies a change and reports whether it had an effect.
func (l *qpLife) step(c qpChange) bool {
	was := *l
	*l = nextQPLife[was][c]
	return *l != was
}

// newQP creates a QP in state Init. allocQueue must follow before the QP can send.
func (f *iface) newQP(e *ep) (*connQP, error) {
	c := verbs.QPConfig{
		Type: verbs.RC, SendCQ: f.sendCQ, RecvCQ: f.recvCQ, SRQ: f.srq,
		Caps: verbs.QPCaps{MaxSend: f.depth, MaxSendSGE: verbs.MaxSGE, MaxInline: verbs.InlineLen},
	}
	if err := f.prefill(); err != nil {
		return nil, err
	}
	qp, err := f.pd.CreateQP(c)
	if err != nil {
		return nil, err
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	p := &connQP{e: e, local: qpInfo{qp.QPN(), verbs.PSN(binary.LittleEndian.Uint32(b[:]) & (1<<24 - 1))}}
	n := f.depth
	p.q = sendQueue{f: f, p: p, qp: qp, maxInFlight: uint32(n - reservedSlots), mask: uint32(n - 1)}
	a := verbs.QPAttr{
		State: verbs.StateInit, Port: f.port, PKeyIndex: f.d.PKeyIndex(f.port),
		Access: verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic,
	}
	if err := qp.Modify(&a, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccessFlags); err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	f.qpns.add(p.local.qpn, p)
	f.numQPs++
	return p, nil
}

// allocQueue allocates the send queue of p, if it has none, and makes room for its completions. A
// half-open connection has no send queue.
func (p *connQP) allocQueue() error {
	f := p.q.f
	if p.q.slots != nil {
		return nil
	}
	if need := (f.numSendQueues + 1) * f.depth; need > f.sendDepth {
		maxCQE := f.d.Context().Attr().MaxCQE
		if need > maxCQE {
			return fmt.Errorf("%d queue pairs: completions of the device: %w", f.numSendQueues+1, ucs.ErrNoResource)
		}
		n := min(maxCQE, 2*need)
		if err := f.sendCQ.Resize(n); err != nil {
			return fmt.Errorf("%d queue pairs: %w", f.numSendQueues+1, err)
		}
		f.sendDepth = n
	}
	p.q.slots = make([]slot, f.depth)
	f.numSendQueues++
	return nil
}

// connect connects p with the peer's QP at a port, and takes it to state RTS.
func (p *connQP) connect(peer qpInfo, port *nic.PortAddress) error {
	f := p.q.f
	rd := f.d.Context().Attr()
	remote := verbs.RemoteQP{
		AV: f.d.AH(f.port, port), QPN: peer.qpn, PSN: peer.psn, MTU: f.portAddr.PathMTU(port), MaxRdAtomic: uint8(min(rd.MaxQPRdAtomic, 16)),
	}
	if f.d.Context().Info().Provider == "soft" && port.Goucx { // QPs of other vendors get no extension of the specification
		remote.PeerFeatures = verbs.PeerProbe | verbs.PeerGoucx
	}
	return verbs.ConnectRC(p.q.qp, remote, verbs.QPAttr{
		SQPSN: p.local.psn, MaxRdAtomic: uint8(min(rd.MaxQPInitRdAtomic, 16)), MinRNRTimer: minRNRTimer,
		Timeout: f.timeoutCode, RetryCnt: f.retryCount, RNRRetry: rnrRetryUnlimited,
	})
}

const (
	// minRNRTimer is the code of 80 µs: the delay before a peer retries that got an RNR NAK.
	//
	// Source: IBTA vol. 1, table 46.
	minRNRTimer = 6
	// rnrRetryUnlimited: a peer without receives is slow, not dead, so RNR retries are unlimited.
	rnrRetryUnlimited = 7
)

// close destroys the QP. Operations in flight complete with st. Received messages that were not
// delivered before are discarded; their buffers return to the free list.
func (p *connQP) close(st uct.Status) {
	if !p.life.step(qpClose) {
		return
	}
	f := p.q.f
	f.flushPostList()
	f.drainCompletions(p)
	closed := errors.Is(p.e.Err, conn.ErrPeerClosed)
	if closed {
		p.completeAcked()
	}
	if err := p.q.qp.Close(); err != nil {
		f.d.Log().Sugar().Warnf("close queue pair: %v", err)
	}
	f.qpns.remove(p.local.qpn)
	f.lastRecvQP = nil
	f.numQPs--
	if p.q.slots != nil {
		f.numSendQueues--
	}
	f.signaled -= p.q.signaled
	p.q.signaled = 0
	for q := &p.q; q.head != q.tail; { // the device no longer accesses the memory of these operations
		s := &q.slots[q.head&q.mask]
		q.head++
		opStatus := st
		switch own := s.kind != slotControl && s.kind != slotFlush; {
		case own:
			p.e.Add(conn.Unacked)
		case closed && !p.e.Has(conn.Unacked): // nothing that it covers is lost
			opStatus = ucs.OK
		}
		q.complete(s, opStatus)
	}
	p.q.unsignaled = 0
	if p.e.Life == conn.Released {
		f.uncountAccepted(p.e)
	}
	if p.e.oldTxQueue == &p.q {
		p.e.oldTxQueue = nil
	}
	for i := range p.outOfOrder {
		f.rx.Put(uint32(p.outOfOrder[i].ID))
	}
	p.outOfOrder = nil
}

// flushLimit bounds the wait for the completions of a QP that has entered the error state. The software RNIC adds
// them at once, other devices within microseconds.
const flushLimit = 50 * time.Millisecond

// completeAcked completes the operations that the peer has acknowledged. The QP is in the error
// state, in which the oldest operation without an ACK, and each one behind it, has a completion
// with an error. An operation that is posted in that state has one, too: so the first error comes
// also where all others are acknowledged.
func (p *connQP) completeAcked() {
	f, q := p.q.f, &p.q
	if q.head == q.tail {
		return
	}
	unacked, end := p.failedID, ucs.Now().Add(flushLimit)
	for marked, seen := false, 0; !p.inError; {
		if !marked && q.tail-q.head <= q.mask {
			q.postZeroWrite(0)
			f.flushPostList()
		}
		marked = true
		usable := f.drainSendCQ()
		for ; seen < len(f.drainedSends) && !p.inError; seen++ {
			if wc := &f.drainedSends[seen]; wc.QPN == p.local.qpn && wc.Status != verbs.WCSuccess {
				p.inError, unacked = true, uint32(wc.ID)
			}
		}
		if !p.inError && (!usable || end < ucs.Now()) {
			unacked = q.head // nothing tells which are acknowledged
			break
		}
	}
	f.drainedSends = slices.DeleteFunc(f.drainedSends, func(wc verbs.WC) bool { return wc.QPN == p.local.qpn })
	if n := unacked - q.head; n != 0 && n < q.tail-q.head {
		q.completeTo(unacked-1, ucs.OK)
	}
}

// drainSendCQ moves what is in the send completion queue to iface.drainedSends. It returns false if the queue is
// unusable.
func (f *iface) drainSendCQ() bool {
	var wcs [sendPollBatch]verbs.WC
	for {
		k := f.sendCQ.Poll(wcs[:])
		if k <= 0 {
			return k == 0
		}
		f.drainedSends = append(f.drainedSends, wcs[:k]...)
	}
}

// drainCompletions moves the QP to the error state and drains the receive completion queue into
// iface.drained. Destroying the QP would discard its completions, and with them their buffers.
func (f *iface) drainCompletions(p *connQP) {
	a := verbs.QPAttr{State: verbs.StateErr}
	_ = p.q.qp.Modify(&a, verbs.AttrState) // fails only if the QP is in error already
	f.drainRecvCQ()
}

// qpnTable maps QP numbers to QPs: open addressing, at most half full.
type qpnTable struct {
	keys []verbs.QPN // 0: empty
	vals []*connQP
	n    int
}

func (t *qpnTable) hash(k verbs.QPN) int { return int(uint32(k)*0x9e3779b1>>8) & (len(t.keys) - 1) }

// find returns the QP with number k, or nil.
//
//hot:bench BenchmarkProgressAM
func (t *qpnTable) find(k verbs.QPN) *connQP {
	if len(t.keys) == 0 {
		return nil
	}
	for i := t.hash(k); t.keys[i] != 0; i = (i + 1) & (len(t.keys) - 1) {
		if t.keys[i] == k {
			return t.vals[i]
		}
	}
	return nil
}

func (t *qpnTable) add(k verbs.QPN, p *connQP) {
	if 2*(t.n+1) > len(t.keys) {
		old := *t
		size := max(16, 2*len(old.keys))
		*t = qpnTable{keys: make([]verbs.QPN, size), vals: make([]*connQP, size)}
		for i, key := range old.keys {
			if key != 0 {
				t.add(key, old.vals[i])
			}
		}
	}
	i := t.hash(k)
	for t.keys[i] != 0 {
		i = (i + 1) & (len(t.keys) - 1)
	}
	t.keys[i], t.vals[i] = k, p
	t.n++
}

// remove deletes k and moves later entries of its probe sequence up.
func (t *qpnTable) remove(k verbs.QPN) {
	mask := len(t.keys) - 1
	i := t.hash(k)
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
			if h := t.hash(t.keys[j]); (j-h)&mask >= (j-i)&mask {
				break
			}
		}
		t.keys[i], t.vals[i] = t.keys[j], t.vals[j]
		i = j
	}
}
