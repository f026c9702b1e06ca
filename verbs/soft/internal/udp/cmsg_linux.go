package udp

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/sys/unix"
)

// A control message is struct cmsghdr and its data, padded to a word:
//
//	length, a size_t | level, int | type, int | data

// wordLen is the size of a size_t in bytes.
const wordLen = bits.UintSize / 8

// putCmsg appends a control message with n zero bytes of data. b has the capacity.
func putCmsg(b []byte, level, name, n int) []byte {
	at := len(b)
	b = b[:at+unix.CmsgSpace(n)]
	clear(b[at:])
	h := b[at:]
	if wordLen == 8 {
		binary.NativeEndian.PutUint64(h, uint64(unix.CmsgLen(n)))
	} else {
		binary.NativeEndian.PutUint32(h, uint32(unix.CmsgLen(n)))
	}
	binary.NativeEndian.PutUint32(h[wordLen:], uint32(level))
	binary.NativeEndian.PutUint32(h[wordLen+4:], uint32(name))
	return b
}

// nextCmsg returns the first control message of b and what follows it. b is at least as
// long as a header. If the length does not fit, data and rest are nil.
func nextCmsg(b []byte) (level, name int, data, rest []byte) {
	var n uint64
	if wordLen == 8 {
		n = binary.NativeEndian.Uint64(b)
	} else {
		n = uint64(binary.NativeEndian.Uint32(b))
	}
	if n < uint64(unix.CmsgLen(0)) || n > uint64(len(b)) {
		return 0, 0, nil, nil
	}
	level = int(int32(binary.NativeEndian.Uint32(b[wordLen:])))
	name = int(int32(binary.NativeEndian.Uint32(b[wordLen+4:])))
	data = b[unix.CmsgLen(0):n]
	if space := unix.CmsgSpace(len(data)); space < len(b) {
		rest = b[space:]
	}
	return level, name, data, rest
}

// lowByte returns a value that the kernel stores as one byte or as an int.
func lowByte(data []byte) uint8 {
	if len(data) >= 4 {
		return uint8(binary.NativeEndian.Uint32(data))
	}
	return data[0]
}
