package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/ibv"
	"github.com/goucx/goucx/verbs/soft"
)

// verbsView describes a device of a verbs provider.
type verbsView struct {
	Provider string           `json:"provider"`
	Device   string           `json:"device"`
	Link     string           `json:"link"`
	Net      string           `json:"interface,omitempty"`
	Address  string           `json:"address"`
	Port     int              `json:"udp_port,omitempty"` // 0: a random port each time the device is opened
	GIDIndex int              `json:"gid_index,omitempty"`
	State    string           `json:"state"`
	MTU      int              `json:"mtu_bytes"`
	LongMTU  int              `json:"long_mtu_bytes,omitempty"`
	Atomic   string           `json:"atomic"`
	Limits   map[string]int64 `json:"limits"`
	Refused  string           `json:"refused,omitempty"` // why it does not open
}

// verbsLimits lists the limits in display order; bytes is set for sizes.
var verbsLimits = []struct {
	name  string
	bytes bool
	of    func(*verbs.DeviceAttr) int64
}{
	{"message", true, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxMessage) }},
	{"inline", true, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxInline) }},
	{"pieces", false, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxSGE) }},
	{"queue pairs", false, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxQP) }},
	{"work requests", false, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxQPWR) }},
	{"reads and atomics", false, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxQPInitRdAtomic) }},
	{"srqs", false, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxSRQ) }},
	{"srq requests", false, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxSRQWR) }},
	{"cqs", false, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxCQ) }},
	{"completions", false, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxCQE) }},
	{"regions", false, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxMR) }},
	{"domains", false, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxPD) }},
	{"address handles", false, func(a *verbs.DeviceAttr) int64 { return int64(a.MaxAH) }},
}

// surveyVerbs opens each device of a provider and reads its attributes. port is the UDP port of the
// settings. The addresses that other hosts see are those of the interfaces. On the in-process link
// each opened device has a new address. A provider without devices has a view with the reason.
func surveyVerbs(p verbs.Provider, port uint16) ([]verbsView, error) {
	infos, err := p.Devices()
	views := make([]verbsView, 0, len(infos))
	switch {
	case err != nil && p.Name() == soft.ProviderName: // a fault of the settings, or of the system
		return nil, err
	case err != nil:
		views = append(views, verbsView{Provider: p.Name(), Refused: err.Error()})
	}
	var errs []error
	for _, i := range infos {
		v := verbsView{Provider: i.Provider, Device: i.Name, Link: i.Link, Net: i.Net}
		d, err := p.Open(i)
		if err != nil {
			v.Refused = err.Error()
			views = append(views, v)
			continue
		}
		errs = append(errs, v.describe(d, port), d.Close())
		views = append(views, v)
	}
	return views, errors.Join(errs...)
}

func (v *verbsView) describe(d verbs.Context, port uint16) error {
	a, err := d.Port(1)
	if err != nil { // of an RDMA device: it has no address, for example
		v.Refused = err.Error()
		return nil
	}
	if a.Link == verbs.LinkInfiniBand {
		v.Refused = verbs.ErrInfiniBand.Error()
		return nil
	}
	gid, err := d.GID(1, a.GIDIndex)
	if err != nil {
		return err
	}
	switch {
	case v.Link == soft.LinkUDP:
		v.Address, v.Port = gid.Addr().String(), int(port)
	case v.Provider == ibv.ProviderName:
		v.Address, v.GIDIndex = gid.Addr().String(), a.GIDIndex
	default:
		v.Address = "random"
	}
	v.State, v.MTU, v.LongMTU, v.Atomic = a.State.String(), a.ActiveMTU.Bytes(), a.LongMTU.Bytes(), atomicDomains[d.Attr().Atomic]
	v.Limits = make(map[string]int64, len(verbsLimits))
	for _, l := range verbsLimits {
		v.Limits[limitKey(l.name)] = l.of(d.Attr())
	}
	return nil
}

// limitKey returns the JSON key of a limit.
func limitKey(name string) string { return strings.ReplaceAll(name, " ", "_") }

var atomicDomains = map[verbs.AtomicCap]string{verbs.AtomicNone: "none", verbs.AtomicHCA: "device", verbs.AtomicGlobal: "cpu"}

// verbsDevices prints the RDMA devices and those of the software RNIC, or one of both, after those of
// UCT.
func (t *tool) verbsDevices(set *config.Set) error {
	c := transports.SoftConfig(set, nil)
	var views []verbsView
	for _, p := range []verbs.Provider{ibv.New(transports.IBVConfig(set)), soft.New(c)} {
		if t.transport != "" && t.transport != p.Name() {
			continue
		}
		vs, err := surveyVerbs(p, c.Port)
		if err != nil {
			return err
		}
		views = append(views, vs...)
	}
	t.document["verbs_devices"] = views
	if t.json {
		return nil
	}
	for i := range views {
		t.verbsDevice(&views[i])
	}
	return nil
}

func (t *tool) verbsDevice(v *verbsView) {
	t.line("")
	if v.Refused != "" {
		name := v.Provider
		if v.Device != "" {
			name += "/" + v.Device
		}
		t.line("< refused %s: %s >", name, v.Refused)
		return
	}
	t.field(columnDomain, "Verbs device", "%s", v.Device)
	t.field(columnDomain, "Provider", "%s", v.Provider)
	t.field(columnDomain, "Link", "%s", v.Link)
	if v.Net != "" {
		t.field(columnDomain, "Interface", "%s", v.Net)
	}
	t.field(columnDomain, "Address", "%s", v.Address)
	if v.Provider == ibv.ProviderName {
		t.field(columnDomain, "GID index", "%d", v.GIDIndex)
	}
	if v.Link == soft.LinkUDP {
		port := "random"
		if v.Port != 0 {
			port = strconv.Itoa(v.Port)
		}
		t.field(columnDomain, "UDP port", "%s", port)
	}
	t.line("")
	t.line("     capabilities:")
	t.field(columnCapability, "state", "%s", v.State)
	t.field(columnCapability, "mtu", "%d bytes", v.MTU)
	if v.LongMTU != 0 {
		t.field(columnCapability, "mtu between our own", "%d bytes", v.LongMTU)
	}
	for _, l := range verbsLimits {
		text := fmt.Sprint(v.Limits[limitKey(l.name)])
		if l.bytes {
			text = sizeText(int(v.Limits[limitKey(l.name)]))
		}
		t.field(columnCapability, l.name, "<= %s", text)
	}
	t.field(columnCapability, "atomics", "64 bit, domain %s", v.Atomic)
	t.line("")
}
