package ud

import (
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// address identifies an interface: its port, and its queue pair on that port.
type address struct {
	port   nic.PortAddress
	worker uct.UUID
	qpn    verbs.QPN
	qkey   uint32
	// name is a digest of the interface's name. A Connect carries that of its target, so that
	// no other interface accepts it.
	name uint64
}

// addressOf converts an address from its wire form.
func addressOf(a *nic.Address) address {
	return address{port: a.Port, worker: a.Worker, qpn: a.QPN, qkey: a.QKey(), name: a.Digest()}
}

// packed converts an address to its wire form; it is the reverse of addressOf.
func (a *address) packed() nic.Address {
	return nic.Address{Port: a.port, Worker: a.worker, QPN: a.qpn}
}

// appendDevice appends the device part of the address, append the interface part.
func (a *address) appendDevice(b []byte) []byte {
	p := a.packed()
	return p.AppendDevice(b)
}

func (a *address) append(b []byte) []byte {
	p := a.packed()
	return p.AppendIface(b)
}

// parse reads both parts of an address. The error describes the first invalid field.
func (a *address) parse(u uct.Address) error {
	var p nic.Address
	if err := p.Parse(u); err != nil {
		return err
	}
	if p.Seg != 0 {
		return fmt.Errorf("address of another transport, with receives of %d bytes", p.Seg)
	}
	*a = addressOf(&p)
	return nil
}

// appendBoth appends the body of a Connect: the length of the device part in one byte,
// the device part, and the interface part.
func (a *address) appendBoth(b []byte) []byte {
	at := len(b)
	b = a.appendDevice(append(b, 0))
	b[at] = byte(len(b) - at - 1)
	return a.append(b)
}

// parseBoth reads the format of appendBoth.
func (a *address) parseBoth(b []byte) error {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return fmt.Errorf("damaged address: %d bytes", len(b))
	}
	n := 1 + int(b[0])
	return a.parse(uct.Address{Device: b[1:n], Iface: b[n:]})
}
