package wireup

import (
	"encoding/binary"

	"github.com/goucx/goucx/uct"
)

// A shape is the part of an address that the workers of one host have in common: the host UUID,
// the context number, and each entry without its iface part. Of the iface part it holds only the
// cut. The record of a worker then holds only the bytes that differ between workers.
type hostTemplate struct {
	key     string // the encoded shape, and the key by which it is found
	perPeer int    // length of each record in bytes
	refs    int
}

// templateEntry is an entry decoded from a key.
type templateEntry struct {
	head    string // without the iface part
	iface   int    // length of the iface part
	elision elision
}

// nextTemplateEntry decodes the first entry of a key and returns the remaining entries.
func nextTemplateEntry(key string) (e templateEntry, rest string) {
	head := entryHeadLen + entryMinLen + int(key[entryHeadLen+attrLen])
	n := int(key[3]) | int(key[4])<<8
	return templateEntry{key[:head], n + entryHeadLen - head, parseElision(key[head:])}, key[head+elisionLen:]
}

// stored returns the length of the iface part in a record.
func (e templateEntry) stored() int { return e.iface - e.elision.len() }

// entry returns the fields that the workers have in common.
func (e templateEntry) entry() Entry {
	b := []byte(e.head)
	return Entry{
		Transport: uct.TransportID(binary.LittleEndian.Uint16(b)), Device: b[2], Attr: parseAttr(b[entryHeadLen:]),
		Addr: uct.Address{Device: b[entryHeadLen+entryMinLen:]},
	}
}

// A record begins with the worker's UUID, followed by the process's UUID. When kin is set, the two
// UUIDs end alike and the record omits the common end.
const (
	uuidLen       = len(uct.UUID{})
	uuidPrefixLen = 4 // number of leading bytes in which such UUIDs differ

	suffixFlagAt = uuidLen + headerLen - offContext // offset in a shape's key, behind host and context
)

func recordHead(sameSuffix bool) int {
	if sameSuffix {
		return uuidLen + uuidPrefixLen
	}
	return 2 * uuidLen
}

// hasSameSuffix reports whether the worker's and the process's UUID end alike. Package ucp creates such
// UUIDs.
func hasSameSuffix(addr []byte) bool {
	return string(addr[offProcess+uuidPrefixLen:offWorker]) == string(addr[offWorker+uuidPrefixLen:offContext])
}

// appendTemplateKey appends the shape's key of a checked address.
func appendTemplateKey(b, addr []byte) []byte {
	b = append(b, addr[offHost:offProcess]...)
	b = append(b, addr[offContext:headerLen]...)
	flag := byte(0)
	if hasSameSuffix(addr) {
		flag = 1
	}
	b = append(b, flag)
	for rest := body(addr); len(rest) > 0; {
		n, _ := entryLen(rest)
		iface := entryHeadLen + entryMinLen + int(rest[entryHeadLen+attrLen])
		b = append(b, rest[:iface]...) // contains the lengths, also that of the iface part
		b = findElision(rest[iface:n], addr).append(b)
		rest = rest[n:]
	}
	return b
}

// newTemplate decodes a key encoded by appendTemplateKey.
func newTemplate(key string) *hostTemplate {
	s := &hostTemplate{key: key}
	s.perPeer = recordHead(s.sameSuffix())
	for rest := s.entries(); len(rest) > 0; {
		var e templateEntry
		e, rest = nextTemplateEntry(rest)
		s.perPeer += e.stored()
	}
	return s
}

// host returns the host UUID.
func (s *hostTemplate) host() (u uct.UUID) {
	copy(u[:], s.key)
	return u
}

// context returns the number of the context within its process.
func (s *hostTemplate) context() uint32 {
	return binary.LittleEndian.Uint32([]byte(s.key[uuidLen:suffixFlagAt]))
}

// sameSuffix reports whether the worker's UUID and the process's UUID end alike.
func (s *hostTemplate) sameSuffix() bool { return s.key[suffixFlagAt] == 1 }

// entries returns the encoded entries of the key.
func (s *hostTemplate) entries() string { return s.key[suffixFlagAt+1:] }

// pack writes the record of a checked address of this shape.
func (s *hostTemplate) pack(record, addr []byte) {
	copy(record, addr[offWorker:offContext])
	n := recordHead(s.sameSuffix())
	copy(record[uuidLen:n], addr[offProcess:offWorker])
	from := body(addr)
	for rest := s.entries(); len(rest) > 0; {
		var e templateEntry
		e, rest = nextTemplateEntry(rest)
		end := len(e.head) + e.iface
		n += e.elision.elide(record[n:], from[len(e.head):end])
		from = from[end:]
	}
}

// view reverses pack. The result owns its bytes.
func (s *hostTemplate) view(record []byte) View {
	v := View{Host: s.host(), Context: s.context(), Entries: []Entry{}}
	n := recordHead(s.sameSuffix())
	copy(v.Worker[:], record)
	v.Process = v.Worker
	copy(v.Process[:], record[uuidLen:n])
	record = record[n:]
	for rest := s.entries(); len(rest) > 0; {
		var e templateEntry
		e, rest = nextTemplateEntry(rest)
		entry := e.entry()
		entry.Addr.Iface = e.elision.restore(record[:e.stored()], &v)
		v.Entries = append(v.Entries, entry)
		record = record[e.stored():]
	}
	return v
}
