package wireup

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// A cut says what of an iface part follows from the rest of the address: the
// worker's UUID, the last half of that of its process, and a CRC-32C at the end.
// Transports that put these there leave less to be stored of each peer.
type cut struct {
	workerAt  int  // where the worker's UUID stands, -1: nowhere
	processAt int  // where behind it the end of the process's does, -1: nowhere
	sum       bool // the last four bytes are the checksum of the others
}

// halfLen is how much of the process's UUID is looked for.
const halfLen = uuidLen / 2

// cutOf finds what may be left out of an iface part of a checked address.
func cutOf(iface, addr []byte) (c cut) {
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

// cutLen is the length of a packed cut.
const cutLen = 5

func (c cut) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(c.workerAt))
	b = binary.LittleEndian.AppendUint16(b, uint16(c.processAt))
	if c.sum {
		return append(b, 1)
	}
	return append(b, 0)
}

func parseCut(b string) cut {
	at := func(i int) int { return int(int16(uint16(b[i]) | uint16(b[i+1])<<8)) }
	return cut{at(0), at(2), b[4] == 1}
}

// len is how many bytes are left out.
func (c cut) len() (n int) {
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

// take writes what is left of an iface part, and gives its length.
func (c cut) take(to, iface []byte) (n int) {
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

// join is the reverse of take, in an address of v's worker and process.
func (c cut) join(stored []byte, v *View) []byte {
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
