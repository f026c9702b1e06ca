package rc

import (
	"errors"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

const (
	// udSends and udRecvs are the capacity for connection messages in flight; more are lost and
	// retransmitted. An interface without connections posts udFirst receives.
	udSends, udRecvs = 64, 128
	udFirst          = 16
	grhLen           = 40 // area for the GRH before each received datagram
)

// udQP is the UD QP for connection messages. Its receives have their own completion queue,
// which is always armed, so that the async goroutine processes messages while the program
// computes. It is armed for unsolicited completions, too: these wake the async goroutine when
// other senders fill the receives.
type udQP struct {
	f      *iface
	qp     verbs.QP
	qpn    verbs.QPN
	recvCQ verbs.CQ  // of receives
	sendCQ verbs.CQ  // of sends; never armed
	armed  bool      // udQP.recvCQ is armed, as far as is known
	tx     *nic.Slab // buffers are used in turn
	rx     *nic.Slab
	// spill is the second scatter entry of every receive, for the rest of a datagram that is
	// longer than a connection message. Without it such a datagram would put the QP into the
	// error state.
	spill    verbs.SGE
	next     uint32 // number of sends so far, without the lost ones
	inFlight [udSends]bool
	wr       [1]verbs.SendWR
	wcs      [16]verbs.WC // receive completions
	sendWCs  [16]verbs.WC // send completions
}

// open creates the QP and posts its first receives.
func (u *udQP) open(f *iface) (err error) {
	u.f = f
	packet := f.self.port.MTU.Bytes()
	spills := uint32(packet/connMsgMaxLen + 1)
	if u.rx, err = nic.NewSlab(f.pd, udSends+int(spills)+udRecvs, grhLen+connMsgMaxLen); err != nil {
		return err
	}
	for range udSends + spills { // the buffers of tx and spill
		u.rx.Take()
	}
	u.tx, u.spill = u.rx, u.rx.SGE(udSends, packet)
	c := verbs.CQConfig{Depth: udRecvs, Channel: f.channel, Cookie: cookieConnMsgs, Domain: f.pd}
	if u.recvCQ, err = f.d.Context().CreateCQ(c); err != nil {
		return err
	}
	if u.sendCQ, err = f.d.Context().CreateCQ(verbs.CQConfig{Depth: udSends, Domain: c.Domain}); err != nil {
		return err
	}
	u.qp, err = f.pd.CreateQP(verbs.QPConfig{
		Type: verbs.UD, SendCQ: u.sendCQ, RecvCQ: u.recvCQ, NoClass: true,
		Caps: verbs.QPCaps{MaxSend: udSends, MaxRecv: udRecvs, MaxSendSGE: 1, MaxRecvSGE: 2},
	})
	if err != nil {
		return err
	}
	u.qpn = u.qp.QPN()
	f.self = peerAt(&nic.Address{Port: f.self.port, Seg: uint32(f.seg), Worker: f.worker, QPN: u.qpn})
	if err = verbs.StartUD(u.qp, verbs.QPAttr{Port: f.port, PKeyIndex: f.d.PKeyIndex(f.port), QKey: f.self.iface.qkey}); err != nil {
		return err
	}
	u.prefill(udFirst)
	return nil
}

// prefill posts up to n more receives.
func (u *udQP) prefill(n int) {
	var wrs [udFirst]verbs.RecvWR
	for n > 0 {
		k := 0
		for ; k < min(n, len(wrs)); k++ {
			i, ok := u.rx.Take()
			if !ok {
				n = 0
				break
			}
			w := &wrs[k]
			u.fillRecv(w, i)
		}
		u.qp.PostRecv(wrs[:k])
		n -= k
	}
}

func (u *udQP) fillRecv(w *verbs.RecvWR, i uint32) {
	w.ID, w.NumSG, w.SG[0], w.SG[1] = uint64(i), 2, u.rx.SGE(i, grhLen+connMsgMaxLen), u.spill
}

// poll processes about maxMsgs connection messages and returns their number. workerEvent: it consumed
// an event of another completion queue. Once its own queue is empty, it arms it. If messages remain,
// it sets the alarm for a section.
func (u *udQP) poll(maxMsgs int) (n int, workerEvent bool) {
	for n < maxMsgs {
		k := u.recvCQ.Poll(u.wcs[:])
		if k <= 0 {
			if u.armed || u.recvCQ.Arm(false) != ucs.OK {
				break
			}
			u.armed = true
			continue // completions before Arm cause no event
		}
		for i := range u.wcs[:k] {
			if n++; u.armed {
				workerEvent = u.f.drainEvents() || workerEvent // consumes the event of this completion
			}
			wc := &u.wcs[i]
			var m connMsg
			if err := u.f.parseConnMsg(&m, wc); err == nil {
				u.f.dispatchConnMsg(&m)
			} else if wc.Status == verbs.WCSuccess {
				u.f.stats.Inc(statGarbage)
				u.f.d.Log().Sugar().Debugf("dropped a connection message: %v", err)
			}
			var wr [1]verbs.RecvWR
			u.fillRecv(&wr[0], uint32(wc.ID))
			u.qp.PostRecv(wr[:])
		}
	}
	if n >= maxMsgs {
		u.f.SetAlarm(ucs.Now().Add(sectionRetry))
	}
	return n, workerEvent
}

// full reports whether the next message would be lost for want of a send slot.
func (u *udQP) full() bool {
	for _, wc := range u.sendWCs[:max(0, u.sendCQ.Poll(u.sendWCs[:]))] {
		u.inFlight[wc.ID] = false
	}
	return u.inFlight[u.next%udSends]
}

// sendConnMsg sends a connection message; it is lost if there is no room.
func (f *iface) sendConnMsg(n *connMsg, to *peer, ah verbs.AH) {
	u := &f.ud
	if u.full() {
		return
	}
	i := u.next % udSends
	n.from = f.self
	w := &u.wr[0]
	*w = verbs.SendWR{
		ID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendSolicited, NumSG: 1,
		QPN: to.iface.qpn, QKey: to.iface.qkey, AH: ah.ID(),
	}
	w.SG[0] = u.tx.SGE(i, len(n.append(u.tx.Bytes(i)[:0])))
	if k, _ := u.qp.PostSend(u.wr[:]); k != 1 {
		return
	}
	u.inFlight[i] = true
	u.next++
	f.stats.Inc(statConnMsgs)
}

// close frees what open created.
func (u *udQP) close() (err error) {
	if u.qp != nil {
		err = u.qp.Close()
	}
	for _, cq := range []verbs.CQ{u.recvCQ, u.sendCQ} {
		if cq != nil {
			err = errors.Join(err, cq.Close())
		}
	}
	if u.rx != nil {
		err = errors.Join(err, u.rx.Close())
	}
	return err
}
