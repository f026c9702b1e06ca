package ud

import (
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
)

// connFormat is the format of Connect, Accept and Reject, and with it of all packets.
var connFormat = protocol.Format{Name: "connection message of ud", Version: 1}

// versionWord returns word B of a Connect, and word C of an Accept and a Reject: from the lowest byte on
// the version, the features, and in a Reject the required features of the Connect that this program
// does not know.
func versionWord(refused protocol.Features) uint64 {
	return uint64(connFormat.Version) | uint64(refused)<<16
}

// checkVersion checks such a word of a peer. The error is a [protocol.Error].
func checkVersion(w uint64) error {
	refused := protocol.Features(w >> 16)
	if err := connFormat.Check(uint8(w), protocol.Features(w>>8)); err != nil || refused == 0 {
		return err
	}
	return &protocol.Error{Format: &connFormat, Version: uint8(w), Features: refused, Local: true}
}

// address identifies an interface: its port, and its queue pair on that port.
type address struct {
	nic.Address
	qkey uint32
	// name is a digest of the interface's name. A Connect carries that of its target, so that
	// no other interface accepts it.
	name uint64
}

func addressOf(a nic.Address) address { return address{Address: a, qkey: a.QKey(), name: a.Digest()} }

// parse reads both parts of an address. The error describes the first invalid field.
func (a *address) parse(u uct.Address) error {
	var p nic.Address
	if err := p.Parse(u); err != nil {
		return err
	}
	if p.Seg != 0 {
		return fmt.Errorf("address of another transport, with receives of %d bytes", p.Seg)
	}
	*a = addressOf(p)
	return nil
}

// appendBody appends the body of a Connect: the length of the device part in one byte,
// the device part, and the interface part.
func (a *address) appendBody(b []byte) []byte {
	at := len(b)
	b = a.AppendDevice(append(b, 0))
	b[at] = byte(len(b) - at - 1)
	return a.AppendIface(b)
}

// parseBody reads the format of appendBody.
func (a *address) parseBody(b []byte) error {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return fmt.Errorf("damaged address: %d bytes", len(b))
	}
	n := 1 + int(b[0])
	return a.parse(uct.Address{Device: b[1:n], Iface: b[n:]})
}
