//go:build linux

package test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/wireup"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// target is a datagram queue pair of the victim, from its address.
type target struct {
	transport uct.TransportID
	device    []byte // part of the address
	worker    [16]byte
	gid       verbs.GID
	lid       uint16 // UDP port
	qpn       verbs.QPN
}

func targetsOf(address []byte) (list []target) {
	v := must(wireup.Parse(address))
	for _, e := range v.Entries {
		d, i := e.Addr.Device, e.Addr.Iface
		if (e.Transport == uct.TransportRC || e.Transport == uct.TransportUD) && d[2]&0x7f == 1 {
			list = append(list, target{
				e.Transport, d, [16]byte(i), verbs.GID(d[8:24]), binary.LittleEndian.Uint16(i[19:]),
				verbs.QPN(i[16]) | verbs.QPN(i[17])<<8 | verbs.QPN(i[18])<<16,
			})
		}
	}
	if len(list) == 0 {
		check(errors.New("the victim has no device on loopback"))
	}
	return list
}

// mix, digest and qkey are those of docs/wire/rc.md.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (g *target) digest() uint64 {
	le, n := binary.LittleEndian, g.worker
	le.PutUint64(n[:], le.Uint64(n[:])^mix(le.Uint64(g.gid[:])^mix(le.Uint64(g.gid[8:]))))
	le.PutUint32(n[8:], le.Uint32(n[8:])^uint32(g.qpn))
	le.PutUint16(n[12:], le.Uint16(n[12:])^g.lid)
	return max(1, mix(le.Uint64(n[:])^mix(le.Uint64(n[8:]))))
}

func (g *target) qkey() uint32 { return uint32(mix(g.digest())) &^ (1 << 31) }

func seal(b []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], crc32.MakeTable(crc32.Castagnoli)))
}

// name is who a connection request says that it is from.
type name struct {
	worker [16]byte
	qpn    verbs.QPN
	lid    uint16
}

func (n *name) iface() []byte {
	b := append([]byte(nil), n.worker[:]...)
	b = append(b, byte(n.qpn), byte(n.qpn>>8), byte(n.qpn>>16))
	return seal(binary.LittleEndian.AppendUint16(b, n.lid), 0)
}

// request asks the target for a connection in the name of from: a hello of rc, or a connect
// of ud.
func (g *target) request(from name, number uint64) []byte {
	le := binary.LittleEndian
	if g.transport == uct.TransportRC {
		b := make([]byte, 52)
		b[0], b[1] = 3, 1 // version, OPEN
		copy(b[4:], from.worker[:])
		le.PutUint64(b[20:], number|1)
		le.PutUint32(b[36:], 3)
		le.PutUint32(b[44:], 77)
		le.PutUint32(b[48:], 1)
		return seal(append(append(b, g.device...), from.iface()...), 0)
	}
	b := make([]byte, 24, 128)
	flow := number&0x3ffff | 1
	le.PutUint64(b, 3<<6|2|flow<<8) // control, connect
	b[8] = 1                        // version
	le.PutUint64(b[16:], g.digest())
	b = append(append(b, byte(len(g.device))), g.device...)
	return append(b, from.iface()...)
}

// stranger is a device of the software RNIC with a datagram queue pair.
type stranger struct {
	pd   verbs.PD
	cq   verbs.CQ
	qp   verbs.QP
	lid  uint16
	mem  verbs.MR
	buf  []byte
	busy [64]bool // sends
	next int
	ahs  map[uint16]verbs.AHID
	came int // datagrams received
}

const (
	pieces  = 64 // each of sends and receives
	pieceIs = 512
)

func newStranger() *stranger {
	p := soft.New(soft.Config{Link: soft.LinkUDP, Addr: loopback})
	dev := must(p.Open(must(p.Devices())[0]))
	s := &stranger{pd: must(dev.AllocPD()), cq: must(dev.CreateCQ(verbs.CQConfig{Depth: 2 * pieces})), ahs: map[uint16]verbs.AHID{}}
	s.lid = must(dev.Port(1)).LID
	s.buf = make([]byte, 2*pieces*pieceIs)
	s.mem = must(s.pd.Register(s.buf, verbs.MRConfig{Access: verbs.LocalWrite}))
	s.qp = must(s.pd.CreateQP(verbs.QPConfig{
		Type: verbs.UD, SendCQ: s.cq, RecvCQ: s.cq,
		Caps: verbs.QPCaps{MaxSend: pieces, MaxRecv: pieces, MaxSendSGE: 1, MaxRecvSGE: 1},
	}))
	// The queue pair takes what is sent to its own name, see name.
	g := target{worker: s.self().worker, gid: verbs.GIDOf(loopback), lid: s.lid, qpn: s.qp.QPN()}
	check(verbs.StartUD(s.qp, verbs.QPAttr{Port: 1, QKey: g.qkey()}))
	for i := range pieces {
		s.receive(pieces + i)
	}
	return s
}

// self is the stranger's true name.
func (s *stranger) self() name { return name{[16]byte{1, 2, 3}, s.qp.QPN(), s.lid} }

func (s *stranger) piece(i, n int) verbs.SGE {
	return verbs.SGE{Addr: s.mem.Addr() + uint64(i*pieceIs), Len: uint32(n), LKey: s.mem.LKey()}
}

func (s *stranger) receive(i int) {
	wr := verbs.RecvWR{ID: uint64(i), NumSG: 1}
	wr.SG[0] = s.piece(i, pieceIs)
	_, st := s.qp.PostRecv([]verbs.RecvWR{wr})
	check(st.Err())
}

// poll takes completions.
func (s *stranger) poll() {
	var wcs [16]verbs.WC
	for _, wc := range wcs[:max(0, s.cq.Poll(wcs[:]))] {
		if wc.Op == verbs.WCRecv {
			s.came++
			s.receive(int(wc.ID))
		} else {
			s.busy[wc.ID] = false
		}
	}
}

// send sends a datagram to a queue pair.
func (s *stranger) send(gid verbs.GID, lid uint16, qpn verbs.QPN, qkey uint32, b []byte) {
	ah, ok := s.ahs[lid]
	if !ok {
		ah = must(s.pd.CreateAH(verbs.AHAttr{DGID: gid, DLID: lid, Port: 1, PeerFeatures: verbs.PeerGoucx})).ID()
		s.ahs[lid] = ah
	}
	i := s.next % pieces
	s.next++
	for s.busy[i] {
		s.poll()
	}
	s.busy[i] = true
	copy(s.buf[i*pieceIs:], b)
	wr := verbs.SendWR{ID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, QPN: qpn, QKey: qkey, AH: ah}
	wr.SG[0] = s.piece(i, min(len(b), pieceIs))
	for {
		_, st := s.qp.PostSend([]verbs.SendWR{wr})
		if st != ucs.NoResource {
			check(st.Err())
			break
		}
		s.poll()
	}
	s.poll()
}

func (s *stranger) sendTo(g *target, b []byte) { s.send(g.gid, g.lid, g.qpn, g.qkey(), b) }

func workerName(rng *rand.Rand) (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:], rng.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rng.Uint64())
	return b
}
