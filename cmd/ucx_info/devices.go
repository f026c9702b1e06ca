package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs/ibv"
	"github.com/goucx/goucx/verbs/soft"
)

// Columns at which field names end, as in UCX's output.
const (
	columnDomain     = 14
	columnIface      = 15
	columnCapability = 21
)

// devices prints -d: every device, whether UCX_TLS permits it or not. RDMA devices and those of the
// software RNIC follow the transports.
func (t *tool) devices() error {
	set, err := t.settings()
	if err != nil {
		return err
	}
	if t.transport != soft.ProviderName && t.transport != ibv.ProviderName {
		if err := t.uctDevices(set); err != nil {
			return err
		}
		if t.transport != "" {
			return nil
		}
	}
	return t.verbsDevices(set)
}

func (t *tool) uctDevices(set *config.Set) error {
	views, err := survey(t.providers, set)
	if err != nil {
		return err
	}
	if t.transport != "" {
		if views, err = filter(views, t.transport); err != nil {
			return err
		}
	}
	t.document["devices"] = views
	if t.json {
		return nil
	}
	for _, c := range views {
		for _, d := range c.Domains {
			t.domain(c, d)
		}
		for _, r := range c.Refused {
			t.line("")
			t.line("< refused %s >", r)
		}
	}
	t.line("")
	t.line("Connection manager: none")
	t.line("     max_conn_priv: 0 bytes")
	return nil
}

// filter returns the components with the given transport name or alias.
func filter(views []componentView, name string) ([]componentView, error) {
	var known []string
	for _, v := range views {
		if v.Name == name || slices.Contains(v.Aliases, name) {
			return []componentView{v}, nil
		}
		known = append(append(known, v.Name), v.Aliases...)
	}
	known = append(known, ibv.ProviderName, soft.ProviderName)
	return nil, usagef("-t %s: no such transport; known are %s: %w", name, strings.Join(known, ", "), ucs.ErrInvalid)
}

func (t *tool) domain(c componentView, d domainView) {
	t.line("")
	t.field(columnDomain, "Memory domain", "%s", d.Name)
	t.field(columnDomain, "Component", "%s", c.Name)
	if len(c.Aliases) > 0 {
		t.field(columnDomain, "Aliases", "%s", strings.Join(c.Aliases, ", "))
	}
	if d.Attr.Register {
		t.field(columnCapability, "register", "%s", limit{Max: d.Register})
	}
	if d.Attr.Allocate {
		t.field(columnCapability, "allocate", "%s", limit{Max: d.Allocate})
	}
	t.field(columnCapability, "remote key", "<= %d bytes", d.KeyLen)
	if d.Attr.NeedMem {
		t.line("          local memory handle is required for zcopy")
	}
	if d.Mapped {
		t.line("          rkey_ptr is supported")
	}
	for _, i := range d.Interfaces {
		t.iface(i)
	}
}

func (t *tool) iface(i ifaceView) {
	t.line("")
	t.field(columnIface, "Transport", "%s", i.Transport)
	t.field(columnIface, "Device", "%s", i.Device)
	t.field(columnIface, "Type", "%s", i.Kind)
	t.field(columnIface, "System device", "%s", i.SystemDevice)
	t.line("")
	t.line("     capabilities:")
	for _, f := range i.capabilityFields() {
		t.field(columnCapability, f[0], "%s", f[1])
	}
	t.line("")
}

// capabilityFields returns names and texts in UCX's order.
func (i ifaceView) capabilityFields() [][2]string {
	a, c := &i.Attr, i.Capabilities
	fields := [][2]string{
		{"bandwidth", fmt.Sprintf("%.2f/ppn + %.2f MB/sec", c.Shared/(1<<20), c.Dedicated/(1<<20))},
		{"latency", latencyText(c)},
		{"overhead", fmt.Sprintf("%.0f nsec", c.OverheadNS)},
	}
	add := func(name, format string, args ...any) {
		fields = append(fields, [2]string{name, fmt.Sprintf(format, args...)})
	}
	for _, f := range forms {
		l, ok := c.Limits[f.name]
		if !ok {
			continue
		}
		add(f.name, "%s", l)
		if kind, zcopy := strings.CutSuffix(f.name, "_zcopy"); zcopy { // no alignment is faster than another
			add(kind+"_opt_zcopy_align", "<= 1")
			add(kind+"_align_mtu", "<= 1")
		}
	}
	if head := a.AM.MaxHeader; head > 0 {
		add("am header", "<= %s", sizeText(head))
	}
	if rows := atomicRows(a); len(rows) > 0 {
		add("domain", "%s", c.AtomicDomain)
		for _, r := range rows {
			add(r.name, "%s bit", strings.Join(r.widths, ", "))
		}
	}
	add("connection", "%s", c.Connection)
	add("device priority", "%d", i.DevicePriority)
	add("device num paths", "%d", i.DevicePaths)
	add("max eps", "%s", i.MaxEndpoints)
	add("flush", "%s", listText(c.Flush))
	add("wake-up", "%s", listText(c.WakeUp))
	add("device address", "%d bytes", i.DeviceAddress)
	add("iface address", "%d bytes", i.IfaceAddress)
	add("error handling", "%s", listText(c.ErrorHandling))
	return fields
}

func latencyText(c capabilities) string {
	if c.LatencyPerEpNS > 0 {
		return fmt.Sprintf("%.0f + %g * N nsec", c.LatencyNS, c.LatencyPerEpNS)
	}
	return fmt.Sprintf("%.0f nsec", c.LatencyNS)
}

func listText(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
