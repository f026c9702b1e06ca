package ud

import (
	"fmt"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// address is where an interface is found: its port, and its queue pair there.
type address struct {
	port   nic.PortAddress
	worker uct.UUID
	qpn    verbs.QPN
	qkey   uint32
	// name is its own: another interface is never taken for this one.
	name uint64
}

// addressOf is an address in the form that peers are told.
func addressOf(a *nic.Address) address {
	return address{port: a.Port, worker: a.Worker, qpn: a.QPN, qkey: a.QKey(), name: a.Digest()}
}

// packed is the reverse of addressOf.
func (a *address) packed() nic.Address {
	return nic.Address{Port: a.port, Worker: a.worker, QPN: a.qpn}
}

// appendDevice appends the port's part, append the interface's.
func (a *address) appendDevice(b []byte) []byte {
	p := a.packed()
	return p.AppendDevice(b)
}

func (a *address) append(b []byte) []byte {
	p := a.packed()
	return p.AppendIface(b)
}

// parse reads both parts of an address. The error names what is wrong.
func (a *address) parse(u uct.Address) error {
	var p nic.Address
	if err := p.Parse(u); err != nil {
		return err
	}
	if p.Seg != 0 {
		return fmt.Errorf("peer's receives take %d bytes, those of a packet are wanted", p.Seg)
	}
	*a = addressOf(&p)
	return nil
}

// appendBoth appends what a Connect carries: length of the port's part, that part,
// and the interface's.
func (a *address) appendBoth(b []byte) []byte {
	at := len(b)
	b = a.appendDevice(append(b, 0))
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
