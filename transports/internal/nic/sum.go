package nic

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// sumLen is the length of the checksum that ends what a peer hands over: addresses,
// keys and connection messages.
const sumLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendSum appends the checksum of b from start on.
func AppendSum(b []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// CheckSum holds the checksum that ends b, of four bytes at least, against what
// stands before it. The error names both values.
func CheckSum(b []byte) error {
	end := len(b) - sumLen
	if got, want := crc32.Checksum(b[:end], castagnoli), binary.LittleEndian.Uint32(b[end:]); got != want {
		return fmt.Errorf("checksum %#x, want %#x", got, want)
	}
	return nil
}
