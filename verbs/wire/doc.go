// Package wire is the packet format of RoCEv2: InfiniBand's transport headers in UDP
// datagrams.
//
// Header holds all fields of a packet's headers. It parses, appends and measures itself.
// Parsing never panics, whatever bytes it gets. BTH and RETH are views, byte slices with
// accessors, for code that reads few fields of many packets. All fields are big-endian, except the ICRC, which is little-endian.
//
//	IP | UDP, port 4791 | BTH 12 B | extension headers | payload | 0-3 B padding | ICRC 4 B
//
// Sources: InfiniBand Architecture Specification vol. 1 release 1.4, chapter 9 and
// annex A17.
//
// The package also rebuilds the headers below the BTH (Network, GRH), which a UDP
// socket does not show, and writes pcap files (Capture).
//
// The software RNIC uses it for its UDP link, and for any link with fault injection or
// packet capture. Start reading at header.go and opcode.go; docs/wire/roce.md shows the
// layout of the bytes.
package wire
