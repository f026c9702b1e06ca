package ucp

import (
	"math"

	"github.com/goucx/goucx/uct"
)

// Active messages of this package, beside those with the program's own (am_word.go).
// docs/wire/ucp.md has their bytes.
const (
	amEager       uct.AMID = 1  // a whole tag message; header: tag
	amFirst       uct.AMID = 2  // first fragment; header: tag; length of the message, data
	amNext        uct.AMID = 3  // following fragment of a tag or active message; header: number of the message; no data: canceled
	amPeer        uct.AMID = 4  // the sender's worker address; header: bytes that follow; a part of the address
	amSync        uct.AMID = 5  // a whole tag message whose sender waits for the match; header: tag; id, data
	amSyncAck     uct.AMID = 6  // acknowledges the match; header: the sender's id
	amRTS         uct.AMID = 7  // RTS of a tag message; header: tag; id, length
	amRTR         uct.AMID = 8  // RTR, requests a message; header: the sender's id; the receiver's id, bytes wanted
	amData        uct.AMID = 9  // the next requested bytes; header: the receiver's id
	amReject      uct.AMID = 10 // the receiver refuses the message; header: the sender's id; status, reason
	amCancel      uct.AMID = 11 // the sender cancels; header: an id; whose
	amFlowControl uct.AMID = 12 // flow control; header: 1: rendezvous only, 0: eager allowed again
	amRTL         uct.AMID = 16 // RTL, as amRTR, from a receiver that can read the sender's memory
	amKey         uct.AMID = 17 // exposes the memory; header: the receiver's id; address, domain, key
	amReadDone    uct.AMID = 18 // the memory was read; header: the sender's id

	// Emulated RMA and AMO (emul_ep.go).
	amPut      uct.AMID = 20 // header: address; key, data
	amGet      uct.AMID = 21 // header: address; key, the requester's id, bytes wanted
	amAtomic   uct.AMID = 22 // header: address; key, id or 0, operand, compare value, operation, width
	amFlush    uct.AMID = 23 // requests a reply when all requests before were carried out; id
	amGetReply uct.AMID = 24 // the next bytes of a get; header: the requester's id
	amReply    uct.AMID = 25 // a reply; header: the requester's id; value, status
)

const (
	// firstHeaderLen is the length of what precedes the data in a first fragment.
	firstHeaderLen = 8
	// syncHeaderLen is the length of what precedes the data of a sync message.
	syncHeaderLen = 8
	// rtsLen and rtrLen are the payload lengths of an RTS and an RTR.
	rtsLen, rtrLen = 16, 16
	// maxMessage is the longest message: a longer one does not fit into an address space.
	maxMessage = math.MaxInt
	// maxReason is the longest reason in a refusal, in bytes.
	maxReason = 200
	// maxPeerAddress is the longest worker address that a peer may send, in bytes.
	maxPeerAddress = 2048
)

// What an amCancel cancels.
const (
	cancelRTS  = 0 // an RTS of the sender; header: the sender's id
	cancelData = 1 // data being sent; header: the receiver's id
)
