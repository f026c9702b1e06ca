package verbs

// The values are those of libibverbs, so that a provider over it needs no translation.

// QPType is a queue pair's transport service.
type QPType uint8

// Queue pair types.
const (
	RC QPType = 2 // reliable connection
	UC QPType = 3 // unreliable connection
	UD QPType = 4 // unreliable datagram
)

// QPState is a queue pair's state.
type QPState uint8

// Queue pair states.
const (
	StateReset QPState = iota // as created: nothing may be posted
	StateInit                 // receives may be posted
	StateRTR                  // ready to receive
	StateRTS                  // ready to send
	StateSQD                  // send queue drained: requests that were not started wait
	StateSQE                  // send queue error, of UD: sends are flushed, receives go on
	StateErr                  // everything is flushed
	numQPStates
)

// MTU is a code for the largest payload of a packet.
type MTU uint8

// MTU codes. Each name holds the payload in bytes.
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
	LocalWrite      Access = 1 << iota // receives and READ responses may be written to it
	RemoteWrite                        // peers may WRITE
	RemoteRead                         // peers may READ
	RemoteAtomic                       // peers may execute atomic operations
	BindMW                             // memory windows may be bound to it
	ZeroBased                          // addresses start at 0
	OnDemand                           // pages are mapped when they are accessed
	HugeTLB                            // a hint: the memory has huge pages
	FlushGlobal                        // peers may flush to global visibility
	FlushPersistent                    // peers may flush to persistence
	RelaxedOrdering Access = 1 << 20   // a hint: the order of WRITEs on the bus is free
)

// Opcode is the operation of a send work request.
type Opcode uint8

// Opcodes of work requests.
const (
	OpWrite       Opcode = iota // writes to remote memory
	OpWriteImm                  // writes, and completes a receive with immediate data
	OpSend                      // sends to a receive
	OpSendImm                   // sends with immediate data
	OpRead                      // reads remote memory
	OpCompareSwap               // compares and swaps 8 bytes of remote memory
	OpFetchAdd                  // adds to 8 bytes of remote memory
	OpLocalInv                  // invalidates a local key
	OpBindMW                    // binds a memory window; posted by BindWindow
	OpSendInv                   // sends, and invalidates a remote key
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
	WCSend        WCOpcode = iota // OpSend, OpSendImm, OpSendInv
	WCWrite                       // OpWrite, OpWriteImm
	WCRead                        // OpRead
	WCCompareSwap                 // OpCompareSwap
	WCFetchAdd                    // OpFetchAdd
	WCBindMW                      // OpBindMW
	WCLocalInv                    // OpLocalInv
	WCRecv        WCOpcode = 128  // a receive
	WCRecvImm     WCOpcode = 129  // a receive that a WRITE with immediate data completed
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
	WCSuccess        WCStatus = iota // the operation succeeded
	WCLocLenErr                      // the message does not fit the receive, or the datagram the MTU
	WCLocQPOpErr                     // the queue pair cannot execute the request
	WCLocEECOpErr                    // reliable datagrams only
	WCLocProtErr                     // a local key, range or right is not valid
	WCFlushErr                       // the queue pair was in an error state
	WCMWBindErr                      // a key or memory window cannot be bound or invalidated
	WCBadRespErr                     // the response is malformed
	WCLocAccessErr                   // a receive of a WRITE with immediate data failed
	WCRemInvReqErr                   // the responder does not support the request, or it is malformed
	WCRemAccessErr                   // a remote key, range or right is not valid
	WCRemOpErr                       // the responder failed
	WCRetryExcErr                    // no response after all retries
	WCRNRRetryExcErr                 // the responder had no receive after all retries
	WCLocRDDViolErr                  // reliable datagrams only
	WCRemInvRDReqErr                 // reliable datagrams only
	WCRemAbortErr                    // the responder aborted the operation
	WCInvEECNErr                     // reliable datagrams only
	WCInvEECStateErr                 // reliable datagrams only
	WCFatalErr                       // the device failed
	WCRespTimeoutErr                 // a response took too long
	WCGeneralErr                     // any other failure
	numWCStatus
)

// EventType is the type of an asynchronous event.
type EventType uint8

// Asynchronous events.
const (
	EventCQErr            EventType = iota // a completion queue overflowed
	EventQPFatal                           // a queue pair failed without a completion to report it
	EventQPReqErr                          // the responder of a queue pair got an invalid request
	EventQPAccessErr                       // the responder of a queue pair refused an access
	EventCommEst                           // the first packet arrived in state RTR
	EventSQDrained                         // a draining send queue is drained
	EventPathMig                           // a queue pair migrated to its alternate path
	EventPathMigErr                        // that migration failed
	EventDeviceFatal                       // the device failed
	EventPortActive                        // a port came up
	EventPortErr                           // a port went down
	EventLIDChange                         // the LID of a port changed
	EventPKeyChange                        // the P_Key table of a port changed
	EventSMChange                          // another subnet manager took over
	EventSRQErr                            // a shared receive queue failed
	EventSRQLimitReached                   // a shared receive queue fell below its limit
	EventQPLastWQEReached                  // a queue pair in the error state takes no more of its SRQ
	EventClientReregister                  // the subnet manager asks for new registrations
	EventGIDChange                         // the GID table of a port changed
	EventWQFatal                           // a work queue failed
)

// PortState is the state of a port.
type PortState uint8

// Port states.
const (
	PortNop         PortState = iota // no change
	PortDown                         // no link
	PortInit                         // a link, not configured yet
	PortArmed                        // configured
	PortActive                       // carries packets
	PortActiveDefer                  // active, and recovers the link
)

// AtomicCap is the scope in which atomic operations are atomic.
type AtomicCap uint8

// Atomic capabilities.
const (
	AtomicNone   AtomicCap = iota // not supported
	AtomicHCA                     // with respect to others that the device executes
	AtomicGlobal                  // with respect to the CPU, too
)

// LinkLayer is the type of a port's link.
type LinkLayer uint8

// Link layers.
const (
	LinkUnspecified LinkLayer = iota // InfiniBand, on old kernels
	LinkInfiniBand                   // InfiniBand
	LinkEthernet                     // Ethernet: RoCE
)
