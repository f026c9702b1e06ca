package ucp

import (
	"math"

	"github.com/goucx/goucx/uct"
)

// Active messages of this package beside those that carry the program's own
// (am_word.go); docs/wire/ucp.md has their bytes.
const (
	amEager    uct.AMID = 1  // a whole tag message; header: tag
	amFirst    uct.AMID = 2  // first fragment; header: tag; length in all, then data
	amNext     uct.AMID = 3  // following fragment of a tag or active message; header: number of the message
	amPeer     uct.AMID = 4  // who sends by this connection; header: bytes that follow; a worker address
	amSync     uct.AMID = 5  // a whole tag message whose sender waits for the match; header: tag; id, data
	amSyncAck  uct.AMID = 6  // the match; header: the sender's id
	amRTS      uct.AMID = 7  // announces a tag message; header: tag; id, length
	amRTR      uct.AMID = 8  // asks for an announced message; header: the sender's id; the receiver's id, bytes wanted
	amData     uct.AMID = 9  // the next bytes asked for; header: the receiver's id
	amRefuse   uct.AMID = 10 // the receiver does not want it; header: the sender's id; status, reason
	amGiveUp   uct.AMID = 11 // the sender withdraws; header: an id; whose
	amThrottle uct.AMID = 12 // header: 1: announce everything, 0: no more
	amRTL      uct.AMID = 16 // as amRTR, from who can read the data where it is
	amKey      uct.AMID = 17 // where it is; header: the receiver's id; address, domain, key
	amTaken    uct.AMID = 18 // it was read; header: the sender's id

	// Software operations on memory (sw_ep.go).
	amPut    uct.AMID = 20 // header: address; key, data
	amGet    uct.AMID = 21 // header: address; key, the requester's id, bytes wanted
	amAtomic uct.AMID = 22 // header: address; key, id or 0, operand, what to compare with, operation, width
	amFlush  uct.AMID = 23 // asks for an answer when all before it is done; id
	amGot    uct.AMID = 24 // the next bytes of a get; header: the requester's id
	amDone   uct.AMID = 25 // an answer; header: the requester's id; value, status
)

const (
	// firstHead is the length of what precedes the data in a first fragment.
	firstHead = 8
	// syncHead is the length of what precedes the data of a sync message.
	syncHead = 8
	// rtsLen and rtrLen are the payloads of announcements and of answers to them.
	rtsLen, rtrLen = 16, 16
	// maxMessage is the longest message: more does not fit into an address space.
	maxMessage = math.MaxInt
	// maxReason is the longest reason in a refusal.
	maxReason = 200
	// maxPeerAddress is the longest worker address that a peer may send.
	maxPeerAddress = 2048
)

// What an amGiveUp withdraws.
const (
	giveUpAnnounced = 0 // what the sender announced; header: its id
	giveUpData      = 1 // what it was sending; header: the receiver's id
)
