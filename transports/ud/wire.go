package ud

import (
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct"
)

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
