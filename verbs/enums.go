package verbs

// The values are those of libibverbs, so that a provider over it needs no translation.

// QPType is a queue pair's transport service.
type QPType uint8

// Queue pair types.
const (
	RC QPType = 2
	UC QPType = 3
	UD QPType = 4
)

// QPState is a queue pair's state.
type QPState uint8

// Queue pair states.
const (
	StateReset QPState = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
	numQPStates
)

// MTU is a code for the largest payload of a packet.
type MTU uint8

// MTU codes.
const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
	// MTU20480 is not in the InfiniBand specification. It is for connected queue pairs
	// between ports that both have it as LongMTU. Three such packets fill a datagram of
	// 64 KB.
	MTU20480
)

// Bytes returns the payload in bytes, or 0 if m is not a valid code.
func (m MTU) Bytes() int {
	switch {
	case m >= MTU256 && m <= MTU4096:
		return 128 << m
	case m == MTU20480:
		return 20480
	}
	return 0
}

// Access is the set of permitted operations on a memory region, or of a queue pair's
// peer.
type Access uint32

// Access flags. RemoteWrite and RemoteAtomic require LocalWrite.
const (
	LocalWrite Access = 1 << iota
	RemoteWrite
	RemoteRead
	RemoteAtomic
	BindMW
	ZeroBased
	OnDemand
	HugeTLB
	FlushGlobal
	FlushPersistent
	RelaxedOrdering Access = 1 << 20
)

// Opcode is the operation of a send work request.
type Opcode uint8

// Opcodes of work requests.
const (
	OpWrite Opcode = iota
	OpWriteImm
	OpSend
	OpSendImm
	OpRead
	OpCompareSwap
	OpFetchAdd
	OpLocalInv
	OpBindMW
	OpSendInv
)

// SendFlags are the options of a send work request.
type SendFlags uint8

// Send flags.
const (
	// SendFence: start after all earlier READs and atomics of the QP have completed.
	SendFence SendFlags = 1 << iota
	// SendSignaled: generate a completion also on success.
	SendSignaled
	// SendSolicited: the peer's completion is a solicited event.
	SendSolicited
	// SendInline: the data are in the work request, or are copied into it when it is
	// posted.
	SendInline
)

// WCOpcode is the completed operation.
type WCOpcode uint8

// Opcodes of completions.
const (
	WCSend WCOpcode = iota
	WCWrite
	WCRead
	WCCompareSwap
	WCFetchAdd
	WCBindMW
	WCLocalInv
	WCRecv    WCOpcode = 128
	WCRecvImm WCOpcode = 129 // a WRITE with immediate data
)

// WCFlags show which fields of a completion are valid.
type WCFlags uint8

// Completion flags.
const (
	WCGRH     WCFlags = 1 << iota // the buffer's first 40 bytes are the GRH area, or the packet had a GRH
	WCWithImm                     // Imm is immediate data
	_
	WCWithInv // Imm is the key that was invalidated
)

// WCStatus is the result of an operation.
type WCStatus uint8

// Completion statuses.
const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
	numWCStatus
)

// EventType is the type of an asynchronous event.
type EventType uint8

// Asynchronous events.
const (
	EventCQErr EventType = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

// PortState is the state of a port.
type PortState uint8

// Port states.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

// AtomicCap is the scope in which atomic operations are atomic.
type AtomicCap uint8

// Atomic capabilities.
const (
	AtomicNone   AtomicCap = iota
	AtomicHCA              // with respect to others that the device executes
	AtomicGlobal           // with respect to the CPU, too
)

// LinkLayer is the type of a port's link.
type LinkLayer uint8

// Link layers.
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
)
