package rc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// note is a connection message as it travels: docs/wire/rc.md.
type note struct {
	msg machine.Msg
	// separate: the hello crosses with none.
	separate bool
	// hangUp: the sender closes its interface.
	hangUp bool
	// half goes with msg.Pair, where msg.Half says so.
	half half
	// from is the sender's interface.
	from peer
}

// Layout of a connection message, little-endian.
const (
	noteVersion   = 2
	noteOffKind   = 1
	noteOffFlags  = 2
	noteOffWorker = 4
	noteOffFrom   = 20
	noteOffTo     = 28
	noteOffPair   = 36
	noteOffOld    = 40
	noteOffQPN    = 44
	noteOffPSN    = 48
	noteOffPort   = 52
	noteOffIface  = noteOffPort + nic.AddressLen
	noteMin       = noteOffIface + nic.IfaceLenMin + noteSum
	noteLen       = noteOffIface + nic.IfaceLenMax + noteSum // of the longest
	noteSum       = 4

	noteResume   = 1
	noteClosing  = 2
	noteSeparate = 4
	noteHangUp   = 8
	noteFlags    = noteResume | noteClosing | noteSeparate | noteHangUp
)

func (n *note) append(b []byte) []byte {
	start, le, m := len(b), binary.LittleEndian, &n.msg
	var flags byte
	for _, f := range []struct {
		set bool
		bit byte
	}{{m.Resume, noteResume}, {m.Closing, noteClosing}, {n.separate, noteSeparate}, {n.hangUp, noteHangUp}} {
		if f.set {
			flags |= f.bit
		}
	}
	b = append(b, noteVersion, byte(m.Kind), flags, 0)
	b = append(b, m.Worker[:]...)
	b = le.AppendUint64(b, m.From)
	b = le.AppendUint64(b, m.To)
	b = le.AppendUint32(b, uint32(m.Pair))
	b = le.AppendUint32(b, uint32(m.Old))
	b = le.AppendUint32(b, uint32(n.half.qpn))
	b = le.AppendUint32(b, uint32(n.half.psn))
	from := n.from.address()
	b = from.AppendIface(from.AppendDevice(b))
	return nic.AppendSum(b, start)
}

// parse reads a message. The error names what is wrong.
func (n *note) parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) < noteMin || len(b) > noteLen {
		return fmt.Errorf("connection message of %d bytes, want %d to %d: %w", len(b), noteMin, noteLen, ucs.ErrInvalid)
	}
	if err := nic.CheckSum(b); err != nil {
		return fmt.Errorf("connection message: %w: %w", err, ucs.ErrInvalid)
	}
	if b[0] != noteVersion || b[noteOffFlags]&^noteFlags != 0 {
		return fmt.Errorf("connection message of version %d with flags %#x: %w", b[0], b[noteOffFlags], ucs.ErrInvalid)
	}
	*n = note{
		msg: machine.Msg{
			Kind: machine.Kind(b[noteOffKind]), Worker: [16]byte(b[noteOffWorker:noteOffFrom]),
			From: le.Uint64(b[noteOffFrom:]), To: le.Uint64(b[noteOffTo:]),
			Pair: machine.PairID(le.Uint32(b[noteOffPair:])), Old: machine.PairID(le.Uint32(b[noteOffOld:])),
			Resume: b[noteOffFlags]&noteResume != 0, Closing: b[noteOffFlags]&noteClosing != 0,
		},
		separate: b[noteOffFlags]&noteSeparate != 0, hangUp: b[noteOffFlags]&noteHangUp != 0,
		half: half{verbs.QPN(le.Uint32(b[noteOffQPN:])), verbs.PSN(le.Uint32(b[noteOffPSN:]))},
	}
	if n.msg.From == 0 || n.half.qpn > verbs.MulticastQPN || n.half.psn >= 1<<24 {
		return fmt.Errorf("connection message of connection %d with queue pair %#x: %w", n.msg.From, uint32(n.half.qpn), ucs.ErrInvalid)
	}
	return n.from.parse(uct.Address{Device: b[noteOffPort:noteOffIface], Iface: b[noteOffIface : len(b)-noteSum]})
}

const (
	// udSends and udRecvs are how many connection messages may be under way; more
	// are lost, and said again. An interface without connections takes udFirst.
	udSends, udRecvs = 64, 128
	udFirst          = 16
	grhLen           = 40 // in front of each datagram received
)

// datagrams is the queue pair by which connection messages go.
type datagrams struct {
	qp   verbs.QP
	qpn  verbs.QPN
	tx   *nic.Slab // used in turn
	rx   *nic.Slab
	next uint32 // of tx
	busy [udSends]bool
	wr   [1]verbs.SendWR
}

// open makes the queue pair and posts its receives.
func (u *datagrams) open(f *iface) (err error) {
	if u.rx, err = nic.NewSlab(f.pd, udSends+udRecvs, grhLen+noteLen); err != nil {
		return err
	}
	for range udSends { // the first ones
		u.rx.Take()
	}
	u.tx = u.rx
	u.qp, err = f.pd.CreateQP(verbs.QPConfig{
		Type: verbs.UD, SendCQ: f.sendCQ, RecvCQ: f.recvCQ,
		Caps: verbs.QPCaps{MaxSend: udSends, MaxRecv: udRecvs, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return err
	}
	u.qpn = u.qp.QPN()
	f.self = peerAt(&nic.Address{Port: f.self.port, Seg: uint32(f.seg), Worker: f.worker, QPN: u.qpn})
	for _, s := range []struct {
		to   verbs.QPState
		mask verbs.AttrMask
	}{
		{verbs.StateInit, verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrQKey},
		{verbs.StateRTR, 0},
		{verbs.StateRTS, verbs.AttrSQPSN},
	} {
		a := verbs.QPAttr{State: s.to, Port: f.port, QKey: f.self.iface.qkey}
		if err = u.qp.Modify(&a, verbs.AttrState|s.mask); err != nil {
			return err
		}
	}
	u.stock(udFirst)
	return nil
}

// stock posts up to n receives more.
func (u *datagrams) stock(n int) {
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
			w.ID, w.NumSG, w.SG[0] = uint64(i), 1, u.rx.Piece(i, grhLen+noteLen)
		}
		u.qp.PostRecv(wrs[:k])
		n -= k
	}
}

// receive posts buffer i.
func (u *datagrams) receive(i uint32) {
	wr := [1]verbs.RecvWR{{ID: uint64(i), NumSG: 1}}
	wr[0].SG[0] = u.rx.Piece(i, grhLen+noteLen)
	u.qp.PostRecv(wr[:])
}

// send sends a message. One for which there is no room is lost.
func (f *iface) send(n *note, to *peer, ah verbs.AH) {
	u := &f.ud
	i := u.next % udSends
	if u.busy[i] {
		return
	}
	n.from = f.self
	w := &u.wr[0]
	*w = verbs.SendWR{
		ID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1,
		QPN: to.iface.qpn, QKey: to.iface.qkey, AH: ah.ID(),
	}
	w.SG[0] = u.tx.Piece(i, len(n.append(u.tx.Bytes(i)[:0])))
	if k, _ := u.qp.PostSend(u.wr[:]); k != 1 {
		return
	}
	u.busy[i] = true
	u.next++
	f.signaled++
	f.stats.Inc(statNotes)
}

// close gives back what open made.
func (u *datagrams) close() (err error) {
	if u.qp != nil {
		err = u.qp.Close()
	}
	if u.rx != nil {
		err = errors.Join(err, u.rx.Close())
	}
	return err
}
