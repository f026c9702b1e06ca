package wireup

import (
	"bytes"
	"encoding/binary"

	"github.com/goucx/goucx/uct"
)

// A shape is the part of an address that the workers of a host share: the host,
// and each entry without its iface part, of which it keeps only the length and
// where in it the worker's UUID stands. The workers' records then hold bytes
// that differ, and nothing else.
type shape struct {
	key     string // what it was found by
	entries []shapeEntry
	perPeer int // bytes of each record
	refs    int
}

type shapeEntry struct {
	entry  Entry // without Addr.Iface; Addr.Device points into the shape's own memory
	iface  int   // bytes of the iface part
	uuidAt int   // where in it the worker's UUID stands, -1: nowhere
}

// stored is the number of bytes of the iface part that the record holds.
func (e shapeEntry) stored() int {
	if e.uuidAt >= 0 {
		return e.iface - len(uct.UUID{})
	}
	return e.iface
}

// recordHead is what precedes the iface parts in a record: worker and process.
const recordHead = 2 * len(uct.UUID{})

// appendShapeKey appends what tells the shape of a checked address from others.
func appendShapeKey(b, addr []byte) []byte {
	b = append(b, addr[offHost:offProcess]...)
	worker := addr[offWorker:headerLen]
	for rest := body(addr); len(rest) > 0; {
		n, _ := entryLen(rest)
		iface := entryHeadLen + entryMinLen + int(rest[entryHeadLen+attrLen])
		b = append(b, rest[:iface]...) // holds the lengths, hence that of the iface part
		b = binary.LittleEndian.AppendUint16(b, uint16(bytes.Index(rest[iface:n], worker)))
		rest = rest[n:]
	}
	return b
}

// newShape decodes a key made by appendShapeKey.
func newShape(key string) *shape {
	s := &shape{key: key, perPeer: recordHead}
	for rest := []byte(key)[len(uct.UUID{}):]; len(rest) > 0; {
		device := int(rest[entryHeadLen+attrLen])
		n := int(binary.LittleEndian.Uint16(rest[3:]))
		iface := entryHeadLen + entryMinLen + device
		e := shapeEntry{
			entry: Entry{
				Transport: uct.TransportID(binary.LittleEndian.Uint16(rest)),
				Device:    rest[2],
				Attr:      parseAttr(rest[entryHeadLen:]),
				Addr:      uct.Address{Device: rest[iface-device : iface : iface]},
			},
			iface:  n - entryMinLen - device,
			uuidAt: int(int16(binary.LittleEndian.Uint16(rest[iface:]))),
		}
		s.entries = append(s.entries, e)
		s.perPeer += e.stored()
		rest = rest[iface+2:]
	}
	return s
}

// host is the host UUID.
func (s *shape) host() (u uct.UUID) {
	copy(u[:], s.key)
	return u
}

// pack writes what the record of a checked address of this shape holds.
func (s *shape) pack(record, addr []byte) {
	n := copy(record, addr[offWorker:headerLen])
	n += copy(record[n:], addr[offProcess:offWorker])
	rest := body(addr)
	for _, e := range s.entries {
		start := entryHeadLen + entryMinLen + len(e.entry.Addr.Device)
		iface := rest[start : start+e.iface]
		rest = rest[start+e.iface:]
		if e.uuidAt >= 0 {
			n += copy(record[n:], iface[:e.uuidAt])
			iface = iface[e.uuidAt+len(uct.UUID{}):]
		}
		n += copy(record[n:], iface)
	}
}

// view is the reverse of pack. The result owns its bytes.
func (s *shape) view(record []byte) View {
	v := View{Host: s.host(), Entries: make([]Entry, len(s.entries))}
	copy(v.Worker[:], record)
	copy(v.Process[:], record[len(v.Worker):])
	rest := record[recordHead:]
	for i, e := range s.entries {
		v.Entries[i] = e.entry
		v.Entries[i].Addr = uct.Address{
			Device: bytes.Clone(e.entry.Addr.Device),
			Iface:  e.join(rest[:e.stored()], v.Worker),
		}
		rest = rest[e.stored():]
	}
	return v
}

// join puts the worker's UUID back into a stored iface part.
func (e shapeEntry) join(stored []byte, worker uct.UUID) []byte {
	iface := make([]byte, 0, e.iface)
	if e.uuidAt < 0 {
		return append(iface, stored...)
	}
	iface = append(iface, stored[:e.uuidAt]...)
	iface = append(iface, worker[:]...)
	return append(iface, stored[e.uuidAt:]...)
}
