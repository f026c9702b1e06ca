package soft

import (
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// packet is one packet between the engine and a link. The engine fills it for the link
// to send, or the link fills it for the engine to process. Only the fields that the
// opcode has (wire.Info.Headers) are valid. A packet is reused for the next one without
// being cleared.
type packet struct {
	op        wire.Opcode
	solicited bool // solicited event
	ackReq    bool
	pkey      uint16
	dest      verbs.QPN
	psn       verbs.PSN

	syndrome  wire.Syndrome // AETH
	msn       uint32
	imm       uint32 // immediate data, or the key to invalidate
	rkey      uint32 // RETH, AtomicETH
	dlen      uint32 // RETH: length of the whole message
	addr      uint64
	swapAdd   uint64 // AtomicETH
	compare   uint64
	atomicOld uint64 // AtomicAckETH
	qkey      uint32 // DETH
	srcQP     verbs.QPN

	inline        bool                    // sg[0] points into the work request and must be copied
	retransmitted bool                    // a retransmission: the payload is copied, because the program may be changing it
	sge           [verbs.MaxSGE]verbs.SGE // the payload's SGEs on this device; the in-process link sends them instead of bytes

	// On the in-process link a packet may also represent the next packets of the same
	// WRITE (batch.go). more is their number. ends is set if the last of them ends the
	// message, batchImm if that one carries immediate data.
	batchMore           int
	batchEnds, batchImm bool

	sgid verbs.GID // the sender's GID and port, if the link provides them
	slid uint16
	tos  uint8
	ttl  uint8

	// The payload: n bytes in nsg pieces. On receive it is valid during the call, on
	// send until the link has sent it.
	n   int
	nsg int
	sg  [verbs.MaxSGE][]byte
}

// dropPayload drops the references to the payload, which is the program's memory, after a
// pass has used the packet for the last time.
func (p *packet) dropPayload() {
	for i := range p.sg {
		if p.sg[i] != nil {
			p.sg[i] = nil
		}
	}
}
