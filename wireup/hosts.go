package wireup

import (
	"encoding/binary"

	"github.com/goucx/goucx/uct"
)

// A shape is the part of an address that the workers of a host share: the host,
// the number of the context, and each entry without its iface part, of which it
// keeps only how to cut it. The workers' records then hold bytes that differ, and
// nothing else.
type shape struct {
	key     string // by which it is found, and all that it says
	perPeer int    // bytes of each record
	refs    int
}

// shapeEntry is an entry as a key has it.
type shapeEntry struct {
	head  string // without the iface part
	iface int    // bytes of that
	cut   cut
}

// nextShapeEntry takes the first entry from those of a key.
func nextShapeEntry(key string) (e shapeEntry, rest string) {
	head := entryHeadLen + entryMinLen + int(key[entryHeadLen+attrLen])
	n := int(key[3]) | int(key[4])<<8
	return shapeEntry{key[:head], n + entryHeadLen - head, parseCut(key[head:])}, key[head+cutLen:]
}

// stored is the number of bytes of the iface part that the record holds.
func (e shapeEntry) stored() int { return e.iface - e.cut.len() }

// entry is what the workers have in common.
func (e shapeEntry) entry() Entry {
	b := []byte(e.head)
	return Entry{
		Transport: uct.TransportID(binary.LittleEndian.Uint16(b)), Device: b[2], Attr: parseAttr(b[entryHeadLen:]),
		Addr: uct.Address{Device: b[entryHeadLen+entryMinLen:]},
	}
}

// A record begins with the worker's UUID and that of its process, of kin without
// its end.
const (
	uuidLen = len(uct.UUID{})
	ownLen  = 4 // bytes in which kin differ

	kinAt = uuidLen + headerLen - offContext // in a shape's key, behind host and context
)

func recordHead(kin bool) int {
	if kin {
		return uuidLen + ownLen
	}
	return 2 * uuidLen
}

// isKin reports whether the two UUIDs of an address end alike, as ucp makes them.
func isKin(addr []byte) bool {
	return string(addr[offProcess+ownLen:offWorker]) == string(addr[offWorker+ownLen:offContext])
}

// appendShapeKey appends what tells the shape of a checked address from others.
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
		b = append(b, rest[:iface]...) // holds the lengths, hence that of the iface part
		b = cutOf(rest[iface:n], addr).append(b)
		rest = rest[n:]
	}
	return b
}

// newShape decodes a key made by appendShapeKey.
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

// host is the host UUID.
func (s *shape) host() (u uct.UUID) {
	copy(u[:], s.key)
	return u
}

// context is the number of the context within its process.
func (s *shape) context() uint32 { return binary.LittleEndian.Uint32([]byte(s.key[uuidLen:kinAt])) }

// kin: the worker's UUID ends as that of its process.
func (s *shape) kin() bool { return s.key[kinAt] == 1 }

// entries are those of the key.
func (s *shape) entries() string { return s.key[kinAt+1:] }

// pack writes what the record of a checked address of this shape holds.
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

// view is the reverse of pack. The result owns its bytes.
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
