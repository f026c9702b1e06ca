package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// run is one run of a test.
type run struct {
	*endpoint
	ctl      *control
	deadline ucs.Time

	local, remote stream // of this side, of the peer
	sameProgram   bool   // the peer is an rdmapeer, too
	cycle, line   int    // bytes of perftest's buffer and of a cache line, agreed with the peer
	areaSize      int    // bytes of the area of a queue pair that the peer may access
	areaStride    int    // distance of the areas
	received      int    // messages of all queue pairs
	sent          int
	verified      int      // messages or operations whose data were checked
	closed        ucs.Time // when the peer closed its connection; 0: it has not
	empty         int      // empty polls since the last look at the time
	elapsed       time.Duration
	wcs           [32]verbs.WC
	onReceive     func(l *lane, k int, b []byte) error
	transferStart ucs.Time
}

// result is what a run prints.
type result struct {
	plan           *plan
	mtu            verbs.MTU
	sent, received int // messages
	verified       int
	elapsed        time.Duration // of the transfer
	counters       []string      // of the device, with -v
}

// String returns the result as a line of words and numbers.
func (r *result) String() string {
	p, side := r.plan, "client"
	if p.server == "" {
		side = "server"
	}
	rate := float64(p.size) * float64(max(r.sent, r.received)) / max(r.elapsed.Seconds(), 1e-9) / 1e6
	return fmt.Sprintf("%s %s %v: size %d, MTU %v, queue pairs %d: sent %d, received %d, verified %d, %.3f s, %.3f MB/s",
		p.test.name, side, p.typ, p.size, r.mtu, p.qps, r.sent, r.received, r.verified, r.elapsed.Seconds(), rate) + strings.Join(r.counters, "")
}

// execute runs the plan. listening is called with the address that a server listens on; it may be
// nil.
func execute(p *plan, listening func(net.Addr)) (res *result, err error) {
	deadline := ucs.Now().Add(p.limit)
	e, err := openEndpoint(p)
	if err != nil {
		return nil, err
	}
	r := &run{endpoint: e, deadline: deadline, cycle: pageSize, line: 64}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.createQueues(); err != nil {
		return nil, err
	}
	conn, err := p.dial(deadline, listening)
	if err != nil {
		return nil, err
	}
	// A write to a peer that does not read ends at the limit, too.
	timer := time.AfterFunc(p.limit, func() { conn.Close() })
	defer timer.Stop()
	defer conn.Close()
	r.ctl = newControl(conn, p.server != "", deadline)
	if p.test.pattern == pingpong {
		err = r.pingpong()
	} else {
		err = r.perftest()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.test.name, err)
	}
	return &result{p, e.mtu, r.sent, r.received, r.verified, r.elapsed, e.counters()}, nil
}

// counters returns lines with the device's counters that are not 0, if the plan wants them.
func (e *endpoint) counters() (lines []string) {
	if !e.plan.counters {
		return nil
	}
	for _, c := range e.ctx.Stats().Snapshot() {
		if c.Value != 0 {
			lines = append(lines, fmt.Sprintf("\n%s %d", c.Name, c.Value))
		}
	}
	return lines
}

// dial connects to the server, or waits for the client. A client tries until the limit, as the
// server may not have started yet.
func (p *plan) dial(deadline ucs.Time, listening func(net.Addr)) (net.Conn, error) {
	if p.server == "" {
		return p.accept(deadline, listening)
	}
	addr := net.JoinHostPort(p.server, strconv.Itoa(p.port))
	for {
		left := deadline.Sub(ucs.Now())
		conn, err := net.DialTimeout("tcp", addr, max(left, time.Millisecond))
		if err == nil {
			return conn, nil
		}
		if left < retryTime {
			return nil, fmt.Errorf("%w: %w", errLimit, err)
		}
		time.Sleep(retryTime)
	}
}

// retryTime is the time between two attempts to connect.
const retryTime = 50 * time.Millisecond

// accept waits for one client.
func (p *plan) accept(deadline ucs.Time, listening func(net.Addr)) (net.Conn, error) {
	ln, err := net.Listen("tcp", ":"+strconv.Itoa(p.port))
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	if listening != nil {
		listening(ln.Addr())
	}
	timer := time.AfterFunc(deadline.Sub(ucs.Now()), func() { ln.Close() })
	defer timer.Stop()
	conn, err := ln.Accept()
	if err != nil && ucs.Now() >= deadline {
		err = fmt.Errorf("wait for a client on %v: %w", ln.Addr(), errLimit)
	}
	return conn, err
}
