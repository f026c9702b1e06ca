package ucp

import "github.com/goucx/goucx/uct"

// Active messages that carry those of programs.
const (
	amUser      uct.AMID = 13 // a whole message; header: word; the program's header, data
	amUserFirst uct.AMID = 14 // first fragment; header: word; length, the program's header, data
	amUserRTS   uct.AMID = 15 // announces a message; header: word; id, length, the program's header
)

// The header word of an active message; docs/wire/ucp.md.
//
//	63..40 0 | 39..32 flags | 31..16 length of the header | 15..0 id
const (
	wordReply uint64 = 1 << 32 // the sender wants to be answered
	wordWhole uint64 = 1 << 33 // announced only for the receiver's budget: its handler gets the data
	wordFlags        = wordReply | wordWhole
	wordMask         = wordFlags | (1<<32 - 1)
)

func amWord(id AMID, headerLen int, o Flags) uint64 {
	w := uint64(id) | uint64(headerLen)<<16
	if o&WantReply != 0 {
		w |= wordReply
	}
	return w
}

// wordHeader is the length of the header in bytes.
func wordHeader(w uint64) int { return int(uint16(w >> 16)) }
