package wire_test

import (
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/goucx/goucx/verbs/wire"
)

// A packet from the wire: where it goes, what it carries, whether it is whole.
func Example() {
	b, _ := hex.DecodeString("0400ffff000000118000010068656c6c6f20736f667420726e696321daf5001c")
	p, fault := wire.Parse(b)
	if fault != wire.FaultNone {
		fmt.Println("dropped:", fault)
		return
	}
	fmt.Printf("%v to QPN %#x, PSN %#x: %q\n", p.Opcode, p.DestQP, p.PSN, p.Payload)

	from := wire.NewPrefix(netip.MustParseAddrPort("10.0.0.2:4791"), netip.MustParseAddrPort("10.0.0.1:4791"))
	id, ok := from.Check(b, 0)
	fmt.Println("identification", id, "whole", ok)
	// Output:
	// SEND Only to QPN 0x11, PSN 0x100: "hello soft rnic!"
	// identification 0 whole true
}
