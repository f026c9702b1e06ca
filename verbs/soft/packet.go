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
	wire.Header

	inline        bool                    // sg[0] points into the work request and must be copied
	retransmitted bool                    // a retransmission: the payload is copied, because the program may be changing it
	sge           [verbs.MaxSGE]verbs.SGE // the payload's SGEs on this device; the in-process link sends them instead of bytes

	// On the in-process link a packet may also represent the next packets of the same
	// WRITE (coalesce). more is their number. ends is set if the last of them ends the
	// message, batchImm if that one carries immediate data.
	batchMore           int
	batchEnds, batchImm bool

	sgid verbs.GID // of a datagram: the sender's GID and port, and the local GID
	slid uint16
	dgid verbs.GID
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

// encode writes p to b, from the BTH to the padding, and returns the length. b has room
// for wire.MaxHeaderLen and the payload. The link adds the ICRC.
func (p *packet) encode(b []byte) int {
	n := p.encodeHeader(b)
	for _, s := range p.sg[:p.nsg] {
		n += dma(b[n:], s)
	}
	clear(b[n : n+int(p.PadCnt)])
	return n + int(p.PadCnt)
}

// encodeHeader writes p's header to b and returns its length.
func (p *packet) encodeHeader(b []byte) int {
	p.PadCnt = uint8(wire.Pad(p.n))
	return p.Put(b)
}

// decode fills p from b, a packet from the BTH to the padding, which may hold any bytes.
// p's payload is a slice of b. If there is a fault, p is undefined.
func (p *packet) decode(b []byte) wire.Fault {
	payload, f := p.Parse(b)
	p.n, p.nsg, p.sg[0] = len(payload), 1, payload
	return f
}
