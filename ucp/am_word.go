package ucp

import "github.com/goucx/goucx/uct"

// Active messages that carry the program's active messages.
const (
	amUser      uct.AMID = 13 // a whole message; header: header word; payload: user header, data
	amUserFirst uct.AMID = 14 // first fragment; header: header word; payload: length, user header, data
	amUserRTS   uct.AMID = 15 // RTS; header: header word; payload: id, length, user header
)

// The header word of an active message is specified in docs/wire/ucp.md:
//
//	63..40 0 | 39..32 flags | 31..16 length of the header | 15..0 id
const (
	wordReply    uint64 = 1 << 32 // the sender requests a reply
	wordPrefetch uint64 = 1 << 33 // sent by rendezvous because of flow control only: the receiver fetches the data before it runs the handler
	wordFlags           = wordReply | wordPrefetch
	wordMask            = wordFlags | (1<<32 - 1)
)

func amWord(id AMID, headerLen int, o Flags) uint64 {
	w := uint64(id) | uint64(headerLen)<<16
	if o&WantReply != 0 {
		w |= wordReply
	}
	return w
}

// wordHeaderLen returns the length of the user header in bytes.
func wordHeaderLen(w uint64) int { return int(uint16(w >> 16)) }
