package uct_test

import (
	"fmt"
	"log"

	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// printer is the handler of an interface: all its callbacks come from Progress.
type printer struct{ got int }

func (p *printer) HandleAM(mem []byte, ds []uct.Desc) (kept uint64) {
	for _, d := range ds {
		fmt.Printf("message %d, header %#x: %s\n", d.ID, d.Header, mem[d.Off:][:d.Len])
		p.got++
	}
	return 0 // nothing is kept: the memory is the transport's again
}

func (p *printer) HandleEvents([]uct.Event) {}

func (p *printer) HandlePending(ts []uct.Token) int { return len(ts) }

func (p *printer) HandleFailure(f uct.Failure) { log.Print(f.Err) }

// The way from a transport to a message: its domain, an interface of the domain,
// an endpoint to an interface's address. Every call answers at once.
func ExampleIface() {
	c := self.Component()
	infos, _ := c.Domains(nil)
	d, err := c.OpenDomain(infos[0], uct.DomainConfig{})
	check(err)
	defer func() { check(d.Close()) }()
	ifaces, _ := d.Ifaces()
	var h printer
	f, err := d.OpenIface(ifaces[0], uct.IfaceConfig{Handler: &h, Worker: uct.UUID{1}})
	check(err)
	defer func() { check(f.Close()) }()

	a := uct.Address{Device: f.DeviceAddress(nil), Iface: f.Address(nil)}
	if ok, why := f.Reachable(a); !ok {
		log.Fatal(why)
	}
	ep, err := f.NewEndpoint(a)
	check(err)
	f.Activate() // one endpoint more that the layer above uses
	if st := ep.AMShort(5, 0xbeef, []byte("hello")); st != ucs.OK {
		log.Fatal(st) // NoResource: ask PendingAdd
	}
	for h.got == 0 {
		f.Progress(uct.MaxBatch)
	}
	ep.Close()
	f.Deactivate()
	// Output: message 5, header 0xbeef: hello
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
