package wireup

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
)

// A hostTemplate is the part of an address that the workers of one host have in common: the host
// UUID, the context number, the feature bits, and each entry without its iface part. Of the iface part it holds only
// the elision. The record of a worker then holds only the bytes that differ between workers.
type hostTemplate struct {
	key     string // the encoded template, by which it is found
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
	short := func(at int) int { return int(key[at]) | int(key[at+1])<<8 }
	offset := func(at int) int { return int(int16(short(at))) }
	c := elision{offset(head), offset(head + 2), key[head+4] == 1} // reverses elision.append
	return templateEntry{key[:head], short(3) + entryHeadLen - head, c}, key[head+elisionLen:]
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

// A record begins with the worker's UUID, followed by the process's UUID. When the flag is set, the two
// UUIDs end alike and the record omits the common end.
const (
	uuidLen       = len(uct.UUID{})
	uuidPrefixLen = 4 // number of leading bytes in which such UUIDs differ

	// Offsets in a key of the feature bits, behind host and context, and of the flag.
	featuresAt   = uuidLen + headerLen - offContext
	suffixFlagAt = featuresAt + 1
)

func recordHead(sameSuffix bool) int {
	if sameSuffix {
		return uuidLen + uuidPrefixLen
	}
	return 2 * uuidLen
}

// appendTemplateKey appends the key of a checked address's template.
func appendTemplateKey(b, addr []byte) []byte {
	b = append(b, addr[offHost:offProcess]...)
	b = append(b, addr[offContext:headerLen]...)
	flag := byte(0)
	if string(addr[offProcess+uuidPrefixLen:offWorker]) == string(addr[offWorker+uuidPrefixLen:offContext]) {
		flag = 1 // the two UUIDs end alike, as those that package ucp creates do
	}
	b = append(b, addr[offFeatures], flag)
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

// sameSuffix reports whether the worker's UUID and the process's UUID end alike.
func (s *hostTemplate) sameSuffix() bool { return s.key[suffixFlagAt] == 1 }

// entries returns the encoded entries of the key.
func (s *hostTemplate) entries() string { return s.key[suffixFlagAt+1:] }

// pack writes the record of a checked address of this template.
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
	v := View{
		Context: binary.LittleEndian.Uint32([]byte(s.key[uuidLen:featuresAt])), Features: protocol.Features(s.key[featuresAt]), Entries: []Entry{},
	}
	copy(v.Host[:], s.key)
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
