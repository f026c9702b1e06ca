package verbs

// Sizes of the work request structs.
const (
	// MaxSGE is the most SGEs of one work request.
	MaxSGE = 4
	// InlineLen is the capacity of SendWR.Inline. With SendInline and SGEs a provider
	// may accept more, up to its MaxInline.
	InlineLen = 64
)

// SGE is a scatter/gather element: a piece of registered memory. The MR with key LKey
// references and pins it.
type SGE struct {
	// Addr is the address: of the process, or relative to the MR's IOVA.
	Addr uint64
	// Len is the length in bytes.
	Len  uint32
	LKey uint32
}

// SendWR is a send work request. It holds no pointer. The caller may reuse it when the
// post returns. The memory of its SGEs belongs to the QP until the completion.
type SendWR struct {
	// ID is returned in the completion.
	ID    uint64
	Op    Opcode
	Flags SendFlags
	// NumSG is the number of SGEs in SG, to be sent or read into.
	NumSG uint8
	// InlineLen bytes of Inline are sent instead, if SendInline is set and NumSG is 0.
	InlineLen uint8
	// Imm is the immediate data, or the key to invalidate.
	Imm uint32
	// Remote and RKey address remote memory, for WRITEs, READs and atomics.
	Remote uint64
	RKey   uint32
	// QPN, QKey and AH address the receiver of a datagram.
	QPN  QPN
	QKey uint32
	AH   AHID
	// Compare is the compare value of OpCompareSwap. Swap is its swap value, or the
	// addend of OpFetchAdd.
	Compare, Swap uint64
	SG            [MaxSGE]SGE
	Inline        [InlineLen]byte
}

// RecvWR is a receive work request: the SGEs that a message is scattered to.
type RecvWR struct {
	ID    uint64
	NumSG uint8
	SG    [MaxSGE]SGE
}

// WC is a completion.
type WC struct {
	// ID is that of the work request.
	ID     uint64
	Status WCStatus
	Op     WCOpcode
	Flags  WCFlags
	// Len is the number of bytes received, including the 40 of a datagram's GRH area.
	Len uint32
	// Imm is the immediate data, or the invalidated key.
	Imm uint32
	// QPN is the local queue pair, SrcQP the sender of a datagram.
	QPN, SrcQP QPN
	// SLID is the sender's UDP port on a soft device (0 means 4791).
	SLID      uint16
	PKeyIndex uint16
	// VendorErr is a provider's own error code; the provider documents it.
	VendorErr uint32
}
