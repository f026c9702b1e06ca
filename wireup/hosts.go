package wireup

import (
	"encoding/binary"

	"github.com/goucx/goucx/uct"
)

// A shape is the part of an address that the workers of one host have in common: the host UUID,
// the context number, and each entry without its iface part. Of the iface part it holds only the
// cut. The record of a worker then holds only the bytes that differ between workers.
type shape struct {
	key     string // the encoded shape, and the key by which it is found
	perPeer int    // length of each record in bytes
	refs    int
}

// shapeEntry is an entry decoded from a key.
type shapeEntry struct {
	head  string // without the iface part
	iface int    // length of the iface part
	cut   cut
}

// nextShapeEntry decodes the first entry of a key and returns the remaining entries.
func nextShapeEntry(key string) (e shapeEntry, rest string) {
	head := entryHeadLen + entryMinLen + int(key[entryHeadLen+attrLen])
	n := int(key[3]) | int(key[4])<<8
	return shapeEntry{key[:head], n + entryHeadLen - head, parseCut(key[head:])}, key[head+cutLen:]
}

// stored returns the length of the iface part in a record.
func (e shapeEntry) stored() int { return e.iface - e.cut.len() }

// entry returns the fields that the workers have in common.
func (e shapeEntry) entry() Entry {
	b := []byte(e.head)
	return Entry{
		Transport: uct.TransportID(binary.LittleEndian.Uint16(b)), Device: b[2], Attr: parseAttr(b[entryHeadLen:]),
		Addr: uct.Address{Device: b[entryHeadLen+entryMinLen:]},
	}
}

// A record begins with the worker's UUID, followed by the process's UUID. When kin is set, the two
// UUIDs end alike and the record omits the common end.
const (
	uuidLen = len(uct.UUID{})
	ownLen  = 4 // number of leading bytes in which such UUIDs differ

	kinAt = uuidLen + headerLen - offContext // offset in a shape's key, behind host and context
)

func recordHead(kin bool) int {
	if kin {
		return uuidLen + ownLen
	}
	return 2 * uuidLen
}

// isKin reports whether the worker's and the process's UUID end alike. Package ucp creates such
// UUIDs.
func isKin(addr []byte) bool {
	return string(addr[offProcess+ownLen:offWorker]) == string(addr[offWorker+ownLen:offContext])
}

// appendShapeKey appends the shape's key of a checked address.
func appendShapeKey(b, addr []byte) []byte {
	b = append(b, addr[offHost:offProcess]...)
	b = append(b, addr[offContext:headerLen]...)
	kin := byte(0)
	if isKin(addr) {
		kin = 1
	}
	b = append(b, kin)
	for rest := body(addr); len(rest) > 0; {
		n, _ := entryLen(rest)
		iface := entryHeadLen + entryMinLen + int(rest[entryHeadLen+attrLen])
		b = append(b, rest[:iface]...) // contains the lengths, also that of the iface part
		b = cutOf(rest[iface:n], addr).append(b)
		rest = rest[n:]
	}
	return b
}

// newShape decodes a key encoded by appendShapeKey.
func newShape(key string) *shape {
	s := &shape{key: key}
	s.perPeer = recordHead(s.kin())
	for rest := s.entries(); len(rest) > 0; {
		var e shapeEntry
		e, rest = nextShapeEntry(rest)
		s.perPeer += e.stored()
	}
	return s
}

// host returns the host UUID.
func (s *shape) host() (u uct.UUID) {
	copy(u[:], s.key)
	return u
}

// context returns the number of the context within its process.
func (s *shape) context() uint32 { return binary.LittleEndian.Uint32([]byte(s.key[uuidLen:kinAt])) }

// kin reports whether the worker's UUID and the process's UUID end alike.
func (s *shape) kin() bool { return s.key[kinAt] == 1 }

// entries returns the encoded entries of the key.
func (s *shape) entries() string { return s.key[kinAt+1:] }

// pack writes the record of a checked address of this shape.
func (s *shape) pack(record, addr []byte) {
	copy(record, addr[offWorker:offContext])
	n := recordHead(s.kin())
	copy(record[uuidLen:n], addr[offProcess:offWorker])
	from := body(addr)
	for rest := s.entries(); len(rest) > 0; {
		var e shapeEntry
		e, rest = nextShapeEntry(rest)
		end := len(e.head) + e.iface
		n += e.cut.take(record[n:], from[len(e.head):end])
		from = from[end:]
	}
}

// view reverses pack. The result owns its bytes.
func (s *shape) view(record []byte) View {
	v := View{Host: s.host(), Context: s.context(), Entries: []Entry{}}
	n := recordHead(s.kin())
	copy(v.Worker[:], record)
	v.Process = v.Worker
	copy(v.Process[:], record[uuidLen:n])
	record = record[n:]
	for rest := s.entries(); len(rest) > 0; {
		var e shapeEntry
		e, rest = nextShapeEntry(rest)
		entry := e.entry()
		entry.Addr.Iface = e.cut.join(record[:e.stored()], &v)
		v.Entries = append(v.Entries, entry)
		record = record[e.stored():]
	}
	return v
}
