package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/verbs/wire"
)

// pcap writes the packets of this process's devices to a file.
type pcap struct {
	path     string
	file     *os.File
	buf      *bufio.Writer
	out      *wire.Capture
	loopback bool // every received packet was also sent here

	mu      sync.Mutex // guards the following fields
	failed  error      // the first error
	packets int
}

// newPcap creates the file and registers it with the devices of c. Only UDP devices have packets
// that a file can hold, so it excludes the others.
func newPcap(path string, alone bool, c *soft.Config) (*pcap, error) {
	if c.Link == soft.LinkInproc {
		return nil, usagef("--pcap: devices on the in-process link, which UCX_SOFT_LINK asks for, send no packets that a file can hold")
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("--pcap: %w", err)
	}
	p := &pcap{path: path, file: f, buf: bufio.NewWriterSize(f, 1<<20), loopback: alone}
	if p.out, err = wire.NewCapture(p.buf); err != nil {
		return nil, errors.Join(fmt.Errorf("--pcap %s: %w", path, err), f.Close())
	}
	c.Link, c.Tap = soft.LinkUDP, p.packet
	return p, nil
}

// packet writes one packet. Errors are reported by close.
func (p *pcap) packet(sent bool, h *wire.Network, b []byte) {
	if p.loopback && !sent {
		return
	}
	err := p.out.Packet(time.Now().UnixNano(), h, b)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packets++
	if p.failed == nil {
		p.failed = err
	}
}

// close completes the file. No device may be open.
func (p *pcap) close() error {
	err := errors.Join(p.failed, p.buf.Flush(), p.file.Close())
	if err != nil {
		return fmt.Errorf("--pcap %s: %w", p.path, err)
	}
	return nil
}
