package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goucx/goucx/ucp"
)

// endpoint prints -e: the selected lanes, then the properties of a real endpoint over them.
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
		info := l.local.ifaces[c.local]
		t.line("                lane[%d]: %2d:%s -> %s", i, c.local, l.name(c.local), strings.Join(c.uses, " "))
		for _, f := range forms {
			if lim := f.of(info.Attr); info.Attr.Ops.Has(f.op) {
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

// columnUCP is the column at which field names of UCP objects end.
const columnUCP = 18

// connect creates the endpoint and prints its lanes and thresholds.
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
	switch {
	case t.address != "":
		if addr, err = readAddress(t.address); err != nil {
			return err
		}
	case t.placement == "intra":
		other, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
		if err != nil {
			return err
		}
		addr = other.Address()
	}
	e, err := w.NewEndpoint(addr, ucp.EndpointConfig{Eager: true})
	if err != nil {
		return err
	}
	for _, l := range e.Info().Lanes {
		t.line("")
		t.field(columnUCP, "connected by", "%s/%s", l.Transport, l.Device)
		t.field(columnUCP, "tag_send", "%s", thresholds(l.Short, l.Whole))
	}
	return nil
}

// thresholds formats protocol thresholds as UCX does.
func thresholds(short, whole int) string {
	var b strings.Builder
	b.WriteString("0..<egr/short>..")
	if short < unlimited {
		if whole > short {
			fmt.Fprintf(&b, "%d..<egr/bcopy>..", short)
		}
		fmt.Fprintf(&b, "%d..<egr/multi>..", whole)
	}
	return b.String() + "(inf)"
}
