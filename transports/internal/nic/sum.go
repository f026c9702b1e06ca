package nic

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// sumLen is the length of the checksum at the end of addresses, keys and connection messages.
const sumLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendSum appends the checksum of b[start:].
func AppendSum(b []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// CheckSum verifies the checksum in the last four bytes of b, which has at least four. The
// error contains both values.
func CheckSum(b []byte) error {
	end := len(b) - sumLen
	if got, want := crc32.Checksum(b[:end], castagnoli), binary.LittleEndian.Uint32(b[end:]); got != want {
		return fmt.Errorf("checksum %#x, want %#x", got, want)
	}
	return nil
}
