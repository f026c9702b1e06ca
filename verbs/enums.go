package verbs

// The values are those of libibverbs, so that a provider over it passes them on.

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

// States.
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

// MTU is the largest payload of a packet.
type MTU uint8

// MTUs.
const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
	// MTU20480 is an extension, of which InfiniBand knows nothing: of connected queue
	// pairs between ports that both name it as their LongMTU. Three such packets fill
	// a datagram of 64 KB.
	MTU20480
)

// Bytes is the payload in bytes; 0 where m is none.
func (m MTU) Bytes() int {
	switch {
	case m >= MTU256 && m <= MTU4096:
		return 128 << m
	case m == MTU20480:
		return 20480
	}
	return 0
}

// Access says what may be done with registered memory, and what a queue pair
// lets peers do.
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

// Opcode is what a send work request does.
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

// SendFlags are the wishes of a send work request.
type SendFlags uint8

// Send flags.
const (
	// SendFence: start after all earlier reads and atomics of the QP have ended.
	SendFence SendFlags = 1 << iota
	// SendSignaled: a completion comes also where it ends well.
	SendSignaled
	// SendSolicited: the peer's completion is a solicited event.
	SendSolicited
	// SendInline: the data stand in the work request, or are copied into it.
	SendInline
)

// WCOpcode is what a completion tells the end of.
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
	WCRecvImm WCOpcode = 129 // a write with immediate data
)

// WCFlags tell which fields of a completion hold something.
type WCFlags uint8

// Completion flags.
const (
	WCGRH     WCFlags = 1 << iota // the buffer's first 40 bytes are the GRH area, or the packet had one
	WCWithImm                     // Imm is immediate data
	_
	WCWithInv // Imm is the key that was invalidated
)

// WCStatus is how an operation ended.
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

// EventType is an asynchronous event.
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

// AtomicCap says among whom atomics are atomic.
type AtomicCap uint8

// Atomic capabilities.
const (
	AtomicNone   AtomicCap = iota
	AtomicHCA              // among those that go through the device
	AtomicGlobal           // with the CPU's too
)

// LinkLayer is what a port's link is.
type LinkLayer uint8

// Link layers.
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
)
