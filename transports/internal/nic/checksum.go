package nic

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// checksumLen is the length of the checksum at the end of addresses, keys and connection messages.
const checksumLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendChecksum appends the checksum of b[start:].
func AppendChecksum(b []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// VerifyChecksum verifies the checksum in the last four bytes of b, which has at least four. The
// error contains both values.
func VerifyChecksum(b []byte) error {
	end := len(b) - checksumLen
	if got, want := crc32.Checksum(b[:end], castagnoli), binary.LittleEndian.Uint32(b[end:]); got != want {
		return fmt.Errorf("checksum %#x, want %#x", got, want)
	}
	return nil
}
