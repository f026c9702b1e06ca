// Package wire has the messages that workers send each other: their ids and the layout of their
// headers and payloads. docs/wire/ucp.md specifies the bytes. All numbers are little-endian. The
// callers check the lengths of received payloads before they decode.
package wire

import (
	"encoding/binary"
	"math"

	"github.com/goucx/goucx/uct"
)

// Active messages of ucp.
const (
	Eager       uct.AMID = 1  // a whole tag message; header: tag
	First       uct.AMID = 2  // first fragment; header: tag; length of the message, data
	Next        uct.AMID = 3  // following fragment of a tag or active message; header: number of the message; no data: canceled
	Peer        uct.AMID = 4  // the sender's worker address; header: bytes that follow; a part of the address
	Sync        uct.AMID = 5  // a whole tag message whose sender waits for the match; header: tag; id, data
	SyncAck     uct.AMID = 6  // acknowledges the match; header: the sender's id
	RTS         uct.AMID = 7  // RTS of a tag message; header: tag; id, length
	RTR         uct.AMID = 8  // RTR, requests a message; header: the sender's id; the receiver's id, bytes wanted
	Data        uct.AMID = 9  // the next requested bytes; header: the receiver's id
	Reject      uct.AMID = 10 // the receiver refuses the message; header: the sender's id; status, reason
	Cancel      uct.AMID = 11 // the sender cancels; header: an id; whose
	FlowControl uct.AMID = 12 // flow control; header: 1: rendezvous only, 0: eager allowed again
	User        uct.AMID = 13 // a whole message of the program; header: header word; payload: user header, data
	UserFirst   uct.AMID = 14 // its first fragment; header: header word; payload: length, user header, data
	UserRTS     uct.AMID = 15 // its RTS; header: header word; payload: id, length, user header
	RTL         uct.AMID = 16 // RTL, as RTR, from a receiver that can read the sender's memory
	Key         uct.AMID = 17 // exposes the memory; header: the receiver's id; address, domain, key
	ReadDone    uct.AMID = 18 // the memory was read; header: the sender's id
	Abort       uct.AMID = 19 // the sender aborts an endpoint; header: an id; what ends, reason

	// Emulated RMA and AMO.
	Put           uct.AMID = 20 // header: address; key, data
	Get           uct.AMID = 21 // header: address; key, the requester's id, bytes wanted
	AtomicRequest uct.AMID = 22 // header: address; key, id or 0, operand, compare value, operation, width
	Flush         uct.AMID = 23 // requests a reply when all requests before were carried out; id
	GetReply      uct.AMID = 24 // the next bytes of a get; header: the requester's id
	Reply         uct.AMID = 25 // a reply; header: the requester's id; value, status
)

const (
	// FirstHeaderLen is the length of what precedes the data in a first fragment.
	FirstHeaderLen = 8
	// SyncHeaderLen is the length of what precedes the data of a sync message.
	SyncHeaderLen = 8
	// RTSLen and RTRLen are the payload lengths of an RTS and an RTR.
	RTSLen, RTRLen = 16, 16
	// KeyHeaderLen is the length of what precedes the transport's key in a Key: address,
	// domain.
	KeyHeaderLen = 9
	// Payload lengths of emulated requests and their replies.
	EmulKeyLen = 8  // key, before the data of a put; also a Flush: id
	GetLen     = 24 // key, id, bytes wanted
	AtomicLen  = 34 // atomic
	ReplyLen   = 16 // value, status
	// MaxMessage is the longest message: a longer one does not fit into an address space.
	MaxMessage = math.MaxInt
	// MaxReason is the longest reason in a refusal or an abort, in bytes.
	MaxReason = 200
	// MaxPeerAddress is the most bytes that a peer may send as its address: its own, and for a Thread
	// also that of its worker.
	MaxPeerAddress = 2 * 2048
)

// What a Cancel cancels.
const (
	CancelRTS  = 0 // an RTS of the sender; header: the sender's id
	CancelData = 1 // data being sent; header: the receiver's id
)

// What an Abort ends. The header is an id, as named here.
const (
	AbortRTS       = 0 // the announced message of the sender's id, also while it is read
	AbortData      = 1 // the data being sent to the receiver's id
	AbortFragments = 2 // the open message in fragments, of this number
	AbortPeer      = 3 // everything: this was the sender's last endpoint to the receiver; 0
)

// The header word of an active message is specified in docs/wire/ucp.md:
//
//	63..40 0 | 39..32 flags | 31..16 length of the header | 15..0 id
const (
	WordReply    uint64 = 1 << 32 // the sender requests a reply
	WordPrefetch uint64 = 1 << 33 // sent by rendezvous because of flow control only: the receiver fetches the data before it runs the handler
	WordFlags           = WordReply | WordPrefetch
	WordMask            = WordFlags | (1<<32 - 1)
)

// UserWord returns the header word of an active message.
func UserWord(id uint16, headerLen int, reply bool) uint64 {
	w := uint64(id) | uint64(headerLen)<<16
	if reply {
		w |= WordReply
	}
	return w
}

// WordHeaderLen returns the length of the user header in bytes.
func WordHeaderLen(w uint64) int { return int(uint16(w >> 16)) }

// Uint64 returns the k-th 8 bytes of a payload, which is long enough.
func Uint64(data []byte, k int) uint64 { return binary.LittleEndian.Uint64(data[8*k:]) }

// PutRTS writes the payload of an RTS: the sender's id and the length of the message.
func PutRTS(b []byte, id, n uint64) {
	binary.LittleEndian.PutUint64(b, id)
	binary.LittleEndian.PutUint64(b[8:], n)
}

// ParseRTS returns the id and the length in the payload of an RTS.
func ParseRTS(b []byte) (id, n uint64) { return Uint64(b, 0), Uint64(b, 1) }

// Atomic is the payload of an AtomicRequest. ID is 0 if the peer does not wait for the value.
type Atomic struct {
	Key, ID, Operand, Compare uint64
	Op                        uct.AtomicOp
	Width                     uint8 // bytes
}

// Put writes a to b.
func (a Atomic) Put(b []byte) {
	binary.LittleEndian.PutUint64(b, a.Key)
	binary.LittleEndian.PutUint64(b[8:], a.ID)
	binary.LittleEndian.PutUint64(b[16:], a.Operand)
	binary.LittleEndian.PutUint64(b[24:], a.Compare)
	b[32], b[33] = byte(a.Op), a.Width
}

// ParseAtomic decodes the payload of an AtomicRequest. The operation and the width may be any.
func ParseAtomic(b []byte) Atomic {
	return Atomic{
		Key: Uint64(b, 0), ID: Uint64(b, 1), Operand: Uint64(b, 2), Compare: Uint64(b, 3),
		Op: uct.AtomicOp(b[32]), Width: b[33],
	}
}
