package ud

import (
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// address is where an interface is found: its port, and its queue pair there.
type address struct {
	port nic.PortAddress
	qpn  verbs.QPN
	qkey uint32
	// name is random: another interface is never taken for this one.
	name uint64
}

// Layout of the interface's part, little-endian; docs/wire/ud.md.
const (
	addrVersion = 1
	addrOffQPN  = 4
	addrOffQKey = 8
	addrOffName = 12
	addrOffSum  = 20
	addrLen     = 24
)

// append appends the interface's part.
func (a *address) append(b []byte) []byte {
	start, le := len(b), binary.LittleEndian
	b = append(b, addrVersion, 0, 0, 0)
	b = le.AppendUint32(b, uint32(a.qpn))
	b = le.AppendUint32(b, a.qkey)
	b = le.AppendUint64(b, a.name)
	return nic.AppendSum(b, start)
}

// parse reads both parts of an address. The error names what is wrong.
func (a *address) parse(u uct.Address) error {
	le, b := binary.LittleEndian, u.Iface
	if len(b) != addrLen {
		return fmt.Errorf("damaged address: %d bytes, want %d", len(b), addrLen)
	}
	if err := nic.CheckSum(b); err != nil {
		return fmt.Errorf("damaged address: %w", err)
	}
	if b[0] != addrVersion {
		return fmt.Errorf("peer's address has version %d, ours %d", b[0], addrVersion)
	}
	a.qpn, a.qkey, a.name = verbs.QPN(le.Uint32(b[addrOffQPN:])), le.Uint32(b[addrOffQKey:]), le.Uint64(b[addrOffName:])
	if a.qpn == 0 || a.qpn >= verbs.MulticastQPN || a.qkey>>31 != 0 {
		return fmt.Errorf("peer's address: queue pair %#x, key %#x", uint32(a.qpn), a.qkey)
	}
	return a.port.Parse(u.Device)
}

// appendBoth appends what a Connect carries: length of the port's part, that part,
// and the interface's.
func (a *address) appendBoth(b []byte) []byte {
	at := len(b)
	b = a.port.Append(append(b, 0))
	b[at] = byte(len(b) - at - 1)
	return a.append(b)
}

// parseBoth reads what appendBoth wrote.
func (a *address) parseBoth(b []byte) error {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return fmt.Errorf("damaged address: %d bytes", len(b))
	}
	n := 1 + int(b[0])
	return a.parse(uct.Address{Device: b[1:n], Iface: b[n:]})
}
