package verbs

// Sizes of the flat work requests.
const (
	// MaxSGE is the most pieces of one work request.
	MaxSGE = 4
	// InlineLen is how much data stands in a SendWR itself. A provider may take
	// more by SendInline with pieces, up to its MaxInline.
	InlineLen = 64
)

// SGE is a piece of registered memory. The MR with key LKey holds and pins it.
type SGE struct {
	// Addr is the piece's address: of the process, or relative to the MR's iova.
	Addr uint64
	// Len in bytes.
	Len  uint32
	LKey uint32
}

// SendWR is a send work request. It holds no pointer; the caller may use it again
// as soon as the post returns. The memory of its pieces is the QP's until the
// completion.
type SendWR struct {
	// ID comes back in the completion.
	ID    uint64
	Op    Opcode
	Flags SendFlags
	// NumSG pieces of SG are sent, or read into.
	NumSG uint8
	// InlineLen bytes of Inline are sent instead, with SendInline and NumSG 0.
	InlineLen uint8
	// Imm is immediate data, or the key to invalidate.
	Imm uint32
	// Remote and RKey name remote memory: writes, reads, atomics.
	Remote uint64
	RKey   uint32
	// QPN, QKey and AH name the receiver of a datagram.
	QPN  QPN
	QKey uint32
	AH   AHID
	// Compare is of OpCompareSwap; Swap is what it stores, or what OpFetchAdd adds.
	Compare, Swap uint64
	SG            [MaxSGE]SGE
	Inline        [InlineLen]byte
}

// RecvWR is a receive work request: the pieces that a message is scattered into.
type RecvWR struct {
	ID    uint64
	NumSG uint8
	SG    [MaxSGE]SGE
}

// WC is a completion.
type WC struct {
	// ID of the work request.
	ID     uint64
	Status WCStatus
	Op     WCOpcode
	Flags  WCFlags
	// Len is the number of bytes received, the 40 of a datagram's GRH area among
	// them.
	Len uint32
	// Imm is immediate data, or the key that was invalidated.
	Imm uint32
	// QPN is the local queue pair, SrcQP the sender of a datagram.
	QPN, SrcQP QPN
	// SLID is the sender's port on a soft device (0 stands for 4791).
	SLID      uint16
	PKeyIndex uint16
	// VendorErr tells more of an error; the provider documents it.
	VendorErr uint32
}
