package wire

// Opcode is the first byte of a packet: three bits of transport and five of operation.
// FLUSH and ATOMIC WRITE are not supported and count as reserved.
type Opcode uint8

// Opcodes of reliable connections.
const (
	SendFirst Opcode = iota
	SendMiddle
	SendLast
	SendLastImm
	SendOnly
	SendOnlyImm
	WriteFirst
	WriteMiddle
	WriteLast
	WriteLastImm
	WriteOnly
	WriteOnlyImm
	ReadRequest
	ReadResponseFirst
	ReadResponseMiddle
	ReadResponseLast
	ReadResponseOnly
	Acknowledge
	AtomicAcknowledge
	CompareSwap
	FetchAdd
	_
	SendLastInv
	SendOnlyInv
)

// UC is the distance of the opcodes of unreliable connections from those of reliable
// ones: SEND and RDMA WRITE, up to UC + WriteOnlyImm.
const UC Opcode = 0x20

// Opcodes of unreliable datagrams, and of congestion notification.
const (
	UDSendOnly    Opcode = 0x64
	UDSendOnlyImm Opcode = 0x65
	CNP           Opcode = 0x81
)

// Headers is the set of extension headers after the BTH, in the order of the bits.
type Headers uint8

// Extension headers.
const (
	HasDETH Headers = 1 << iota
	HasRETH
	HasAtomicETH
	HasAETH
	HasAtomicAckETH
	HasImm
	HasIETH
)

// headerLens are the lengths of the extension headers in bytes, by bit.
var headerLens = [...]uint8{8, 16, 28, 4, 8, 4, 4}

// Kind classifies packets for responder and completer.
type Kind uint8

// Packet kinds.
const (
	KindNone Kind = iota // no valid opcode
	KindSend
	KindWrite
	KindReadRequest
	KindAtomic
	KindReadResponse
	KindAck
	KindDatagram
	KindCNP
	KindUnreliable // a SEND or RDMA WRITE of an unreliable connection
)

// Place is a packet's position in its message. If the opcode has a payload it
// determines the length: First and Middle one MTU, Last 1 byte to one MTU, Only 0 bytes
// to one MTU.
type Place uint8

// Positions.
const (
	PlaceOnly Place = iota
	PlaceFirst
	PlaceMiddle
	PlaceLast
)

// Begins reports whether the packet is the first of its message.
func (p Place) Begins() bool { return p == PlaceOnly || p == PlaceFirst }

// Ends reports whether the packet is the last of its message.
func (p Place) Ends() bool { return p == PlaceOnly || p == PlaceLast }

// Info describes an opcode.
type Info struct {
	Kind    Kind
	Place   Place
	Headers Headers
	// Len is the length of BTH and extension headers in bytes.
	Len uint8
	// Payload: the packet may carry data.
	Payload bool
	// TakesRecv: the packet consumes a receive work request when it ends its message.
	TakesRecv bool
	Name      string
}

// infos is the table of opcodes.
//
// Source: IBTA vol. 1, 9.2.1 and table 38; Linux rxe_opcode.c.
var infos = [256]Info{
	SendFirst:          row(KindSend, PlaceFirst, 0, "SEND First"),
	SendMiddle:         row(KindSend, PlaceMiddle, 0, "SEND Middle"),
	SendLast:           row(KindSend, PlaceLast, 0, "SEND Last"),
	SendLastImm:        row(KindSend, PlaceLast, HasImm, "SEND Last Immediate"),
	SendOnly:           row(KindSend, PlaceOnly, 0, "SEND Only"),
	SendOnlyImm:        row(KindSend, PlaceOnly, HasImm, "SEND Only Immediate"),
	SendLastInv:        row(KindSend, PlaceLast, HasIETH, "SEND Last Invalidate"),
	SendOnlyInv:        row(KindSend, PlaceOnly, HasIETH, "SEND Only Invalidate"),
	WriteFirst:         row(KindWrite, PlaceFirst, HasRETH, "RDMA WRITE First"),
	WriteMiddle:        row(KindWrite, PlaceMiddle, 0, "RDMA WRITE Middle"),
	WriteLast:          row(KindWrite, PlaceLast, 0, "RDMA WRITE Last"),
	WriteLastImm:       row(KindWrite, PlaceLast, HasImm, "RDMA WRITE Last Immediate"),
	WriteOnly:          row(KindWrite, PlaceOnly, HasRETH, "RDMA WRITE Only"),
	WriteOnlyImm:       row(KindWrite, PlaceOnly, HasRETH|HasImm, "RDMA WRITE Only Immediate"),
	ReadRequest:        row(KindReadRequest, PlaceOnly, HasRETH, "RDMA READ Request"),
	ReadResponseFirst:  row(KindReadResponse, PlaceFirst, HasAETH, "RDMA READ Response First"),
	ReadResponseMiddle: row(KindReadResponse, PlaceMiddle, 0, "RDMA READ Response Middle"),
	ReadResponseLast:   row(KindReadResponse, PlaceLast, HasAETH, "RDMA READ Response Last"),
	ReadResponseOnly:   row(KindReadResponse, PlaceOnly, HasAETH, "RDMA READ Response Only"),
	Acknowledge:        row(KindAck, PlaceOnly, HasAETH, "Acknowledge"),
	AtomicAcknowledge:  row(KindAck, PlaceOnly, HasAETH|HasAtomicAckETH, "Atomic Acknowledge"),
	CompareSwap:        row(KindAtomic, PlaceOnly, HasAtomicETH, "Compare and Swap"),
	FetchAdd:           row(KindAtomic, PlaceOnly, HasAtomicETH, "Fetch and Add"),
	UC + SendFirst:     uc(KindSend, PlaceFirst, 0, "UC SEND First"),
	UC + SendMiddle:    uc(KindSend, PlaceMiddle, 0, "UC SEND Middle"),
	UC + SendLast:      uc(KindSend, PlaceLast, 0, "UC SEND Last"),
	UC + SendLastImm:   uc(KindSend, PlaceLast, HasImm, "UC SEND Last Immediate"),
	UC + SendOnly:      uc(KindSend, PlaceOnly, 0, "UC SEND Only"),
	UC + SendOnlyImm:   uc(KindSend, PlaceOnly, HasImm, "UC SEND Only Immediate"),
	UC + WriteFirst:    uc(KindWrite, PlaceFirst, HasRETH, "UC RDMA WRITE First"),
	UC + WriteMiddle:   uc(KindWrite, PlaceMiddle, 0, "UC RDMA WRITE Middle"),
	UC + WriteLast:     uc(KindWrite, PlaceLast, 0, "UC RDMA WRITE Last"),
	UC + WriteLastImm:  uc(KindWrite, PlaceLast, HasImm, "UC RDMA WRITE Last Immediate"),
	UC + WriteOnly:     uc(KindWrite, PlaceOnly, HasRETH, "UC RDMA WRITE Only"),
	UC + WriteOnlyImm:  uc(KindWrite, PlaceOnly, HasRETH|HasImm, "UC RDMA WRITE Only Immediate"),
	UDSendOnly:         row(KindDatagram, PlaceOnly, HasDETH, "UD SEND Only"),
	UDSendOnlyImm:      row(KindDatagram, PlaceOnly, HasDETH|HasImm, "UD SEND Only Immediate"),
	CNP:                row(KindCNP, PlaceOnly, 0, "CNP"),
}

func row(k Kind, p Place, h Headers, name string) Info {
	n := uint8(BTHLen)
	for i, l := range headerLens {
		if h>>i&1 != 0 {
			n += l
		}
	}
	return Info{
		Kind: k, Place: p, Headers: h, Len: n, Name: name,
		Payload:   k == KindSend || k == KindWrite || k == KindReadResponse || k == KindDatagram || k == KindCNP,
		TakesRecv: p.Ends() && (k == KindSend || k == KindDatagram || k == KindWrite && h&HasImm != 0),
	}
}

// uc is the row of an unreliable connection's opcode. k is the kind of the opcode of a
// reliable connection.
func uc(k Kind, p Place, h Headers, name string) Info {
	i := row(k, p, h, name)
	i.Kind = KindUnreliable
	return i
}

// Info returns the description of an opcode. Kind is KindNone if it is reserved.
func (o Opcode) Info() *Info { return &infos[o] }

// String returns the specification's name of the opcode.
func (o Opcode) String() string {
	if n := infos[o].Name; n != "" {
		return n
	}
	return "reserved opcode"
}
