//go:build linux

package test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A numbered message tells who sent it, its place in the sender's order, and
// whether it is whole:
//
//	0 sender u32 | 4 checksum of all else u32 | 8 number u64 | 16 bytes that depend on both
const messageHead = 16

var table = crc32.MakeTable(crc32.Castagnoli)

// fill makes p message number n of sender.
func fill(p []byte, sender uint32, n uint64) {
	binary.LittleEndian.PutUint32(p, sender)
	binary.LittleEndian.PutUint64(p[8:], n)
	x := n<<32 | uint64(sender) | 1
	rest := p[messageHead:]
	for ; len(rest) >= 8; rest = rest[8:] {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(rest, x)
	}
	for i := range rest {
		rest[i] = byte(x >> (8 * i))
	}
	binary.LittleEndian.PutUint32(p[4:], checksum(p))
}

func checksum(p []byte) uint32 {
	return crc32.Update(crc32.Checksum(p[:4], table), table, p[8:])
}

// read checks a message and gives what it tells.
func read(p []byte) (sender uint32, n uint64, err error) {
	if len(p) < messageHead {
		return 0, 0, fmt.Errorf("a message of %d bytes", len(p))
	}
	sender, n = binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint64(p[8:])
	if sum := binary.LittleEndian.Uint32(p[4:]); sum != checksum(p) {
		return sender, n, fmt.Errorf("message %d of sender %d, %d bytes: checksum %#x, not %#x", n, sender, len(p), checksum(p), sum)
	}
	return sender, n, nil
}

// sizes are the lengths that messages take in turn: one cell, the bulk ring, the
// longest whole message, two fragments, many.
var sizes = []int{16, 48, 49, 200, 1000, 3000, 3600, 4096, 9000, 16, 16, 64 << 10, 16, 300 << 10}

const longest = 300 << 10

// sizeOf is the length of message n of a sender.
func sizeOf(sender uint32, n uint64) int {
	if n%64 != 63 { // the long ones are rare, so that the short ones are many
		return sizes[(n+uint64(sender))%9]
	}
	return sizes[9+(n/64)%5]
}
