package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

// The pcap format: a file header, and a header for each packet. Capture writes
// little-endian fields and nanoseconds. Frames begin with the IP header.
//
// Source: draft-ietf-opsawg-pcap; the link types are tcpdump's.
const (
	pcapMagic   = 0xa1b23c4d
	pcapMajor   = 2
	pcapMinor   = 4
	pcapLinkRaw = 101
	pcapSnapLen = 1 << 16
)

// Capture writes packets to a pcap file, for tcpdump and Wireshark. Wireshark decodes
// packets as RoCE if one of the ports is 4791. For another port N use `tshark -d
// udp.port==N,infiniband`.
//
// Any goroutine may call it. Each packet is one Write, without buffering.
type Capture struct {
	mu  sync.Mutex // guards both fields below
	w   io.Writer
	buf []byte
}

// NewCapture writes the file header.
func NewCapture(w io.Writer) (*Capture, error) {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, pcapMagic)
	b = le.AppendUint16(b, pcapMajor)
	b = le.AppendUint16(b, pcapMinor)
	b = append(b, make([]byte, 8)...) // time zone and accuracy: always 0 in practice
	b = le.AppendUint32(b, pcapSnapLen)
	b = le.AppendUint32(b, pcapLinkRaw)
	if _, err := w.Write(b); err != nil {
		return nil, fmt.Errorf("write pcap header: %w", err)
	}
	return &Capture{w: w}, nil
}

// Packet writes one packet, from the BTH to the ICRC, with IP and UDP headers built
// from h and a valid UDP checksum. at is its time in nanoseconds since 1970, or since
// the start of a simulation.
func (c *Capture) Packet(at int64, h *Network, packet []byte) error {
	const second = 1e9
	le := binary.LittleEndian
	c.mu.Lock()
	defer c.mu.Unlock()
	b := le.AppendUint32(c.buf[:0], uint32(at/second))
	b = le.AppendUint32(b, uint32(at%second))
	b = append(b, make([]byte, 8)...)
	head := len(b)
	b = h.AppendIP(b, UDPLen+len(packet))
	b = h.AppendUDP(b, len(packet))
	b = append(b, packet...)
	h.sealUDP(b[head:])
	n := uint32(len(b) - head)
	le.PutUint32(b[head-8:], n)
	le.PutUint32(b[head-4:], n)
	c.buf = b
	if _, err := c.w.Write(b); err != nil {
		return fmt.Errorf("write packet of %d bytes to pcap: %w", len(packet), err)
	}
	return nil
}
