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

// pcap writes the packets of this process's devices into a file.
type pcap struct {
	path  string
	file  *os.File
	buf   *bufio.Writer
	out   *wire.Capture
	alone bool // all that is received was sent here too

	mu     sync.Mutex // guards failed
	failed error      // the first one
}

// newPcap makes the file and has the devices of c give it their packets. Only
// UDP devices have packets that a file can hold, so the others are left out.
func newPcap(path string, alone bool, c *soft.Config) (*pcap, error) {
	if c.Link == soft.LinkInproc {
		return nil, usagef("--pcap: devices on the in-process link, which UCX_SOFT_LINK asks for, send no packets that a file can hold")
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("--pcap: %w", err)
	}
	p := &pcap{path: path, file: f, buf: bufio.NewWriterSize(f, 1<<20), alone: alone}
	if p.out, err = wire.NewCapture(p.buf); err != nil {
		return nil, errors.Join(fmt.Errorf("--pcap %s: %w", path, err), f.Close())
	}
	c.Link, c.Tap = soft.LinkUDP, p.packet
	return p, nil
}

// packet writes one packet; what fails is told at the end.
func (p *pcap) packet(sent bool, h *wire.Network, b []byte) {
	if p.alone && !sent {
		return
	}
	if err := p.out.Packet(time.Now().UnixNano(), h, b); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.failed == nil {
			p.failed = err
		}
	}
}

// close completes the file; no device is open any more.
func (p *pcap) close() error {
	err := errors.Join(p.failed, p.buf.Flush(), p.file.Close())
	if err != nil {
		return fmt.Errorf("--pcap %s: %w", p.path, err)
	}
	return nil
}
