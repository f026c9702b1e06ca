package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"time"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/wireup"
)

// Columns at which field names of UCP objects and of protocols end, as in UCX's output.
const (
	columnUCP      = 19
	columnProtocol = 24
)

// endpoint prints -e: the selected lanes, then the protocols of a real endpoint over them.
func (t *tool) endpoint() error {
	set, err := t.contextSettings()
	if err != nil {
		return err
	}
	l, err := t.chooseLanes(set)
	if err != nil {
		return err
	}
	t.line("")
	t.line("UCP endpoint")
	t.line("")
	t.field(columnUCP, "peer", "%s", l.peer)
	for i, c := range l.chosen() {
		local := l.local.ifaces[c.local]
		text := fmt.Sprintf("lane[%d]: %2d:%s.0 md[%d]", i, c.local, l.name(c.local), local.Domain)
		t.line("                %-42s-> md[%d]/%s/sysdev[255] %s", text, l.remote.Entries[c.remote].Device, local.Info.Transport, strings.Join(c.uses, " "))
		for _, f := range forms {
			if lim := f.of(local.Attr); local.Attr.Ops.Has(f.op) {
				t.field(columnUCP+len("lane[0]"), f.name, "%s", lim)
			}
		}
	}
	if err := l.local.close(); err != nil {
		return err
	}
	err = t.connect()
	t.line("")
	return err
}

// connect creates the endpoint and prints its lanes and protocols.
func (t *tool) connect() (err error) {
	c, err := t.openContext()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	if err != nil {
		return err
	}
	addr := w.Address()
	if t.placement == "intra" {
		other, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
		if err != nil {
			return err
		}
		addr = other.Address()
	}
	switch {
	case t.address != "":
		addr, err = readAddress(t.address)
	case t.ip != "":
		addr, err = t.exchange(addr)
	}
	if err != nil {
		return err
	}
	e, err := w.NewEndpoint(addr, ucp.EndpointConfig{Eager: true})
	if err != nil {
		return err
	}
	key, err := t.peerKey(c, e)
	if err != nil {
		return err
	}
	t.line("")
	for _, l := range e.Info().Lanes {
		t.field(columnUCP, "connected by", "%s/%s", l.Transport, l.Device)
	}
	t.protocols(e.Protocols(key))
	return nil
}

// peerKey returns a key to memory of the peer, if that is in this process, else nil.
func (t *tool) peerKey(c *ucp.Context, e ucp.Endpoint) (*ucp.RemoteKey, error) {
	features, err := parseFeatures(t.features)
	if err != nil || t.address != "" || features != 0 && features&ucp.FeatureRMA == 0 {
		return nil, err
	}
	m, err := c.Allocate(1, ucp.MemConfig{})
	if err != nil {
		return nil, err
	}
	return e.UnpackKey(m.Key())
}

// exchangeTime bounds the exchange of a worker address within this host.
const exchangeTime = 5 * time.Second

// exchange passes a worker address over a TCP connection between a server and a client, both at the
// IP address of -A, and returns what the client received.
func (t *tool) exchange(addr ucp.Address) (got ucp.Address, err error) {
	at := net.JoinHostPort(t.ip, "0")
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("-A %s: %w", t.ip, err)
	}
	sent := make(chan error, 1)
	go func() {
		server, err := l.Accept()
		if err == nil {
			_ = server.SetDeadline(time.Now().Add(exchangeTime))
			_, err = server.Write(addr)
			err = errors.Join(err, server.Close())
		}
		sent <- err
	}()
	defer func() { err = errors.Join(err, l.Close(), <-sent) }()
	local, err := net.ResolveTCPAddr("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("-A %s: %w", t.ip, err)
	}
	dialer := net.Dialer{LocalAddr: local, Timeout: exchangeTime}
	client, err := dialer.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("-A %s: %w", t.ip, err)
	}
	_ = client.SetDeadline(time.Now().Add(exchangeTime))
	b, err := io.ReadAll(io.LimitReader(client, wireup.MaxAddress+1))
	if err = errors.Join(err, client.Close()); err != nil {
		return nil, fmt.Errorf("-A %s: %w", t.ip, err)
	}
	t.field(columnUCP, "client/server", "worker address received over TCP from %s", l.Addr())
	return b, nil
}

// protocolNames says what each protocol does.
var protocolNames = map[string]string{
	"egr/short": "one message, copied", "egr/bcopy": "one message, copied", "egr/zcopy": "one message, read in place",
	"egr/multi": "several messages, copied", "rndv": "requested or read by the receiver",
	"short": "written or read at once", "bcopy": "copied by way of a buffer", "zcopy": "by the device, in place",
	"am": "by messages, which the peer's worker carries out",
}

// protocols prints UCX's line for each operation, and a line for each of its ranges of lengths.
func (t *tool) protocols(ranges []ucp.ProtocolRange) {
	t.line("")
	for i, r := range ranges {
		if r.Min > 0 {
			continue
		}
		name := r.Op
		if !strings.Contains(name, "_send") {
			name += "[0]"
		}
		end := i + 1
		for end < len(ranges) && ranges[end].Min > 0 {
			end++
		}
		t.field(columnProtocol, name, "%s", thresholds(ranges[i:end]))
	}
	t.line("")
	for _, r := range ranges {
		last := "(inf)"
		if r.Max != math.MaxUint64 {
			last = fmt.Sprint(r.Max)
		}
		t.field(columnProtocol, r.Op, "%-18s %-10s %-50s %s", fmt.Sprintf("%d..%s", r.Min, last), r.Protocol, protocolNames[r.Protocol], r.Lane)
	}
}

// thresholds formats the ranges of an operation as UCX does, each with the length from which the
// next one holds.
func thresholds(ranges []ucp.ProtocolRange) string {
	var b strings.Builder
	for _, r := range ranges {
		fmt.Fprintf(&b, "%d..<%s>..", r.Min, r.Protocol)
	}
	return b.String() + "(inf)"
}
