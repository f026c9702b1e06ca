package wireup

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// An elision describes the fields of an iface address part that can be derived from the rest of the
// worker address: the worker's UUID, the last half of the process's UUID, and a CRC-32C at the
// end. The Table omits these fields from a peer's record.
type elision struct {
	workerAt  int  // offset of the worker's UUID, -1: not present
	processAt int  // offset of the end of the process's UUID, behind the worker's; -1: not present
	sum       bool // the last four bytes are the checksum of the others
}

// halfLen is the length of the part of the process's UUID that is searched for.
const halfLen = uuidLen / 2

// findElision finds the derivable fields in an iface part of a checked address.
func findElision(iface, addr []byte) (c elision) {
	if end := len(iface) - crcLen; end >= 0 && crc32.Checksum(iface[:end], castagnoli) == binary.LittleEndian.Uint32(iface[end:]) {
		c.sum = true
		iface = iface[:end]
	}
	from := 0
	if c.workerAt = bytes.Index(iface, addr[offWorker:offContext]); c.workerAt >= 0 {
		from = c.workerAt + uuidLen
	}
	if c.processAt = bytes.Index(iface[from:], addr[offWorker-halfLen:offWorker]); c.processAt >= 0 {
		c.processAt += from
	}
	return c
}

// elisionLen is the length of an encoded elision.
const elisionLen = 5

func (c elision) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(c.workerAt))
	b = binary.LittleEndian.AppendUint16(b, uint16(c.processAt))
	if c.sum {
		return append(b, 1)
	}
	return append(b, 0)
}

// len returns the number of omitted bytes.
func (c elision) len() (n int) {
	if c.workerAt >= 0 {
		n += uuidLen
	}
	if c.processAt >= 0 {
		n += halfLen
	}
	if c.sum {
		n += crcLen
	}
	return n
}

// elide writes an iface part without its derivable fields to to, and returns the written length.
func (c elision) elide(to, iface []byte) (n int) {
	if c.sum {
		iface = iface[:len(iface)-crcLen]
	}
	from := 0
	if c.workerAt >= 0 {
		n = copy(to, iface[:c.workerAt])
		from = c.workerAt + uuidLen
	}
	if c.processAt >= 0 {
		n += copy(to[n:], iface[from:c.processAt])
		from = c.processAt + halfLen
	}
	return n + copy(to[n:], iface[from:])
}

// restore reverses elide for an address of v's worker and process.
func (c elision) restore(stored []byte, v *View) []byte {
	iface := make([]byte, 0, len(stored)+c.len())
	if c.workerAt >= 0 {
		iface = append(append(iface, stored[:c.workerAt]...), v.Worker[:]...)
		stored = stored[c.workerAt:]
	}
	if c.processAt >= 0 {
		n := c.processAt - len(iface)
		iface = append(append(iface, stored[:n]...), v.Process[halfLen:]...)
		stored = stored[n:]
	}
	iface = append(iface, stored...)
	if c.sum {
		iface = binary.LittleEndian.AppendUint32(iface, crc32.Checksum(iface, castagnoli))
	}
	return iface
}
