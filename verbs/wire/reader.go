package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// pcapMagicMicro is the magic of files whose times are in microseconds, tcpdump's default.
const pcapMagicMicro = 0xa1b2c3d4

// pcapLinkEthernet is the link type of frames with an Ethernet header.
const pcapLinkEthernet = 1

// Lengths and types of an Ethernet header.
const (
	etherLen  = 14
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
)

// CaptureReader reads packets from a pcap file: one of Capture's, or one of tcpdump's from an
// Ethernet link.
type CaptureReader struct {
	r        *bufio.Reader
	order    binary.ByteOrder
	fraction int64 // nanoseconds of a unit of the second time field
	ethernet bool
	buf      []byte
}

// NewCaptureReader reads the file header. The error names a format that is not supported.
func NewCaptureReader(r io.Reader) (*CaptureReader, error) {
	const length, linkType = 24, 20
	var head [length]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("read pcap header: %w", err)
	}
	c := &CaptureReader{r: bufio.NewReader(r), order: binary.LittleEndian}
	if binary.BigEndian.Uint32(head[:])>>24 == pcapMagic>>24 {
		c.order = binary.BigEndian
	}
	switch magic := c.order.Uint32(head[:]); magic {
	case pcapMagic:
		c.fraction = 1
	case pcapMagicMicro:
		c.fraction = 1000
	default:
		return nil, fmt.Errorf("read pcap header: magic %#x is not of a pcap file", magic)
	}
	switch link := c.order.Uint32(head[linkType:]); link {
	case pcapLinkRaw:
	case pcapLinkEthernet:
		c.ethernet = true
	default:
		return nil, fmt.Errorf("read pcap header: link type %d, want %d or %d", link, pcapLinkEthernet, pcapLinkRaw)
	}
	return c, nil
}

// Next returns the next UDP packet: its time in nanoseconds, the headers below the BTH, and what
// follows them, which is valid until the next call. It skips frames of other protocols. At the
// end of the file the error is io.EOF; a frame that is cut off, or whose lengths contradict each
// other, is another error.
func (c *CaptureReader) Next() (at int64, h Network, packet []byte, err error) {
	for {
		var head [16]byte
		if _, err := io.ReadFull(c.r, head[:]); err != nil {
			if !errors.Is(err, io.EOF) {
				err = fmt.Errorf("read pcap frame: %w", err)
			}
			return 0, h, nil, err
		}
		at := int64(c.order.Uint32(head[:]))*1e9 + int64(c.order.Uint32(head[4:]))*c.fraction
		n, original := c.order.Uint32(head[8:]), c.order.Uint32(head[12:])
		if n > pcapSnapLen+etherLen || n < original {
			return 0, h, nil, fmt.Errorf("read pcap frame: %d bytes of %d", n, original)
		}
		c.buf = append(c.buf[:0], make([]byte, n)...)
		if _, err := io.ReadFull(c.r, c.buf); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // not the end of the file
			}
			return 0, h, nil, fmt.Errorf("read pcap frame: %w", err)
		}
		frame := c.buf
		if c.ethernet {
			if len(frame) < etherLen {
				return 0, h, nil, fmt.Errorf("frame of %d bytes is shorter than an Ethernet header", len(frame))
			}
			kind := binary.BigEndian.Uint16(frame[etherLen-2:])
			if kind != etherIPv4 && kind != etherIPv6 {
				continue
			}
			frame = frame[etherLen:]
		}
		packet, ok, err := h.parse(frame)
		if err != nil {
			return 0, h, nil, err
		}
		if ok {
			return at, h, packet, nil
		}
	}
}

// parse reads the headers of an unfragmented UDP packet from a frame that begins with the IP header, and returns
// what follows them. A packet of another protocol is not ok. Bytes after the packet, which pad short Ethernet frames, are
// dropped.
func (h *Network) parse(frame []byte) (packet []byte, ok bool, err error) {
	be := binary.BigEndian
	var src, dst netip.Addr
	var udp []byte
	switch {
	case len(frame) >= IPv4Len && frame[0] == 0x45:
		n := int(be.Uint16(frame[ip4Total:]))
		if n < IPv4Len || n > len(frame) {
			return nil, false, fmt.Errorf("IPv4 packet of %d bytes in a frame of %d", n, len(frame))
		}
		if frame[ip4Proto] != protoUDP {
			return nil, false, nil
		}
		h.TOS, h.TTL, h.ID, h.FlowLabel = frame[ip4TOS], frame[ip4TTL], be.Uint16(frame[ip4ID:]), 0
		src, dst = netip.AddrFrom4([4]byte(frame[ip4Src:])), netip.AddrFrom4([4]byte(frame[ip4Dst:]))
		udp = frame[IPv4Len:n]
	case len(frame) >= IPv6Len && frame[0]>>4 == 6:
		n := int(be.Uint16(frame[ip6Payload:]))
		if n > len(frame)-IPv6Len {
			return nil, false, fmt.Errorf("IPv6 payload of %d bytes in a frame of %d", n, len(frame))
		}
		if frame[ip6Next] != protoUDP {
			return nil, false, nil
		}
		word := be.Uint32(frame)
		h.TOS, h.TTL, h.ID, h.FlowLabel = uint8(word>>20), frame[ip6Hop], 0, word&flowMask
		src, dst = netip.AddrFrom16([16]byte(frame[ip6Src:])), netip.AddrFrom16([16]byte(frame[ip6Dst:]))
		udp = frame[IPv6Len : IPv6Len+n]
	default:
		return nil, false, errors.New("frame without an IP header that is understood")
	}
	if len(udp) < UDPLen || int(be.Uint16(udp[udpLength:])) != len(udp) {
		return nil, false, errors.New("UDP length contradicts the IP header's")
	}
	h.Src = netip.AddrPortFrom(src, be.Uint16(udp))
	h.Dst = netip.AddrPortFrom(dst, be.Uint16(udp[udpDst:]))
	return udp[UDPLen:], true, nil
}
