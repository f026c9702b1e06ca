package wire

import "time"

// Syndrome is the first byte of an AETH.
//
//	000ccccc acknowledgement, credit code c
//	001ttttt receiver not ready, timer code t
//	011nnnnn negative acknowledgement, code n
//
// Source: IBTA vol. 1, 9.7.5.2.8.
type Syndrome uint8

// Syndromes.
const (
	// AckNoCredits is an ACK without credit information.
	AckNoCredits Syndrome = 0x1f

	rnrBit   Syndrome = 0x20
	kindMask Syndrome = 0x60
	codeMask Syndrome = 0x1f

	NakSequence     Syndrome = 0x60 // a packet is missing
	NakInvalid      Syndrome = 0x61 // a request that is not permitted, or does not fit
	NakRemoteAccess Syndrome = 0x62 // key, range or access right
	NakRemoteOp     Syndrome = 0x63 // the responder failed to execute it
	NakInvalidRD    Syndrome = 0x64 // of reliable datagrams
)

// RNR returns the syndrome of an RNR NAK with that timer code.
func RNR(code uint8) Syndrome { return rnrBit | Syndrome(code)&codeMask }

// IsAck reports whether s is an ACK. A reserved syndrome is neither an ACK nor an RNR
// NAK nor a NAK.
func (s Syndrome) IsAck() bool { return s&^codeMask == 0 }

// IsRNR reports whether s is an RNR NAK: the receiver was not ready.
func (s Syndrome) IsRNR() bool { return s&^codeMask == rnrBit }

// IsNak reports whether s is a NAK.
func (s Syndrome) IsNak() bool { return s&^codeMask == kindMask }

// Code returns the credit, timer or NAK code.
func (s Syndrome) Code() uint8 { return uint8(s & codeMask) }

// rnrTimers are the RNR timers in units of 10 µs, by code.
var rnrTimers = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimer returns how long a requester waits, by timer code (min_rnr_timer).
//
// Source: IBTA vol. 1, table 45.
func RNRTimer(code uint8) time.Duration {
	return time.Duration(rnrTimers[code&31]) * 10 * time.Microsecond
}
