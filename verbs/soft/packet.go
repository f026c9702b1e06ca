package soft

import (
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// packet is one packet between the engine and a link. The engine fills it and
// the link sends it, or a link fills it and the engine acts on it; only the
// fields that its opcode has (wire.Info.Headers) hold something. It is used
// again for the next packet and not cleared.
type packet struct {
	op     wire.Opcode
	se     bool // solicited
	ackReq bool
	pkey   uint16
	dest   verbs.QPN
	psn    verbs.PSN

	syn     wire.Syndrome // AETH
	msn     uint32
	imm     uint32 // immediate data, or the key to invalidate
	rkey    uint32 // RETH, AtomicETH
	dlen    uint32 // RETH: of the whole message
	addr    uint64
	swapAdd uint64 // AtomicETH
	compare uint64
	old     uint64 // AtomicAckETH
	qkey    uint32 // DETH
	src     verbs.QPN

	inline bool                    // sg[0] is in the work request: it must be copied
	again  bool                    // it was sent before: perhaps the program changes the payload all the time
	ref    [verbs.MaxSGE]verbs.SGE // of this device, by which the in-process link names the payload

	// In process a packet may stand for more of the same write that follow it, the
	// last of which ends the message, with immediate data or without: train.go.
	more         int
	ends, hasImm bool

	sgid verbs.GID // of the sender, and its port, where the link knows
	slid uint16
	tos  uint8
	ttl  uint8

	// The payload: n bytes in nsg pieces. Valid during the call, where the packet
	// comes; until the link has sent it, where it goes.
	n   int
	nsg int
	sg  [verbs.MaxSGE][]byte
}

// letGo drops the payload, which is the program's memory, when a pass has used the
// packet for the last time.
func (p *packet) letGo() {
	for i := range p.sg {
		if p.sg[i] != nil {
			p.sg[i] = nil
		}
	}
}
