// Package wire is the packet format of RoCEv2: InfiniBand's transport headers
// in UDP datagrams.
//
// A header is a view: a byte slice with accessors, as long as its type says. The
// caller checks the length once, with Parse, which never panics whatever bytes it
// is given. All fields are big-endian but the ICRC, which is little-endian.
//
//	IP | UDP, port 4791 | BTH 12 B | extension headers | payload | 0-3 B padding | ICRC 4 B
//
// Sources: InfiniBand Architecture Specification vol. 1 release 1.4, chapter 9
// and annex A17.
//
// Beside the packets themselves: the headers below the BTH, which a UDP socket
// does not show and which are written anew (Network, GRH), and pcap files
// (Capture).
//
// The software RNIC uses it for its UDP link, and for any link on which packets
// are broken or captured. Start reading at packet.go and opcode.go; the bytes are
// drawn in docs/wire/roce.md.
package wire
