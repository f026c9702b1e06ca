package wireup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Use is the permitted use of a transport.
type Use uint8

// Uses.
const (
	// UseNone: not used.
	UseNone Use = iota
	// UseConnect: only for connecting other transports, not for data.
	UseConnect
	// UseAll: for everything.
	UseAll
)

// auxSuffix after a name in UCX_TLS permits UseConnect.
const auxSuffix = ":aux"

// Selection holds the values of the settings TLS, NET_DEVICES, SHM_DEVICES and SELF_DEVICES. It is
// immutable.
type Selection struct {
	names   map[string][]string // transport name: the name and its aliases
	tls     config.List
	devices [len(deviceRows)]config.List // by uct.DeviceKind
	missing []string                     // transports of UCX in UCX_TLS that goucx does not have

	// The settings with their origins, for error texts.
	tlsText     string
	devicesText [len(deviceRows)]string
}

var deviceRows = [...]*config.Row[config.List]{
	uct.DeviceSelf: rowSelfDevices,
	uct.DeviceShm:  rowShmDevices,
	uct.DeviceNet:  rowNetDevices,
}

// Select reads the settings in s; nil: defaults. It returns an error for a name in UCX_TLS that is
// no transport, alias or transport of UCX. A UCX_TLS that leaves no transport for data is an error
// too. The error lists the available transports.
func Select(s *config.Set, components []uct.Component) (*Selection, error) {
	sel := &Selection{names: make(map[string][]string), tls: rowTLS.Get(s), tlsText: settingText(s, rowTLS)}
	for kind, row := range deviceRows {
		sel.devices[kind], sel.devicesText[kind] = row.Get(s), settingText(s, row)
	}
	var all []string
	for _, c := range components {
		names := append([]string{c.Name()}, c.Aliases()...)
		sel.names[c.Name()] = names
		for _, n := range names {
			all = append(all, n, n+auxSuffix)
		}
	}
	sel.missing = sel.tls.Unmatched(all)
	if bad := unknown(sel.tls, sel.missing); len(bad) > 0 {
		for i, n := range bad {
			bad[i] = fmt.Sprintf("%q", n)
		}
		return nil, fmt.Errorf("setting %s: no transport %s; known are all%s", sel.tlsText, strings.Join(bad, ", "), known(components))
	}
	carriesData := func(c uct.Component) bool {
		u, _ := sel.Transport(c.Name())
		return u == UseAll
	}
	if len(components) > 0 && !slices.ContainsFunc(components, carriesData) {
		instead := ""
		if slices.Contains(sel.missing, "tcp") {
			instead = "; goucx has no tcp: between hosts rc and ud run over UDP (UCX_TLS=rc)"
		}
		return nil, fmt.Errorf("setting %s leaves no transport; known are all%s%s: %w", sel.tlsText, known(components), instead, ucs.ErrUnsupported)
	}
	return sel, nil
}

// settingText returns the text of a setting with its value and origin.
func settingText(s *config.Set, row *config.Row[config.List]) string {
	return fmt.Sprintf("%s%s=%v (%v)", config.Prefix, row.Name(), row.Get(s), s.Origin(row.Name()))
}

// Missing returns the transports of UCX that UCX_TLS names and goucx does not have.
func (sel *Selection) Missing() []uct.Refusal {
	if sel.tls.Negated() {
		return nil
	}
	var out []uct.Refusal
	for _, n := range sel.missing {
		out = append(out, uct.Refusal{Transport: n, Reason: "a transport of UCX that goucx does not have, asked for by " + sel.tlsText})
	}
	return out
}

// known returns a list of the transports with their aliases: ", shm (sm, mm), self".
func known(components []uct.Component) string {
	var b strings.Builder
	for _, c := range components {
		b.WriteString(", " + c.Name())
		if a := c.Aliases(); len(a) > 0 {
			b.WriteString(" (" + strings.Join(a, ", ") + ")")
		}
	}
	return b.String()
}

// Transport returns the permitted use of the named transport, and the reason if it is restricted.
// A name that was not passed to Select is permitted only by the list "all".
func (sel *Selection) Transport(name string) (u Use, reason string) {
	names := sel.names[name]
	if names == nil {
		names = []string{name}
	}
	listed := sel.tls.All() || slices.ContainsFunc(names, sel.lists)
	aux := slices.ContainsFunc(names, func(n string) bool { return sel.lists(n + auxSuffix) })
	switch {
	case sel.tls.Negated() && listed, !sel.tls.Negated() && !listed && !aux:
		return UseNone, "not allowed by " + sel.tlsText
	case sel.tls.Negated() || listed:
		return UseAll, ""
	default:
		return UseConnect, "allowed only for connecting by " + sel.tlsText
	}
}

// lists reports whether the list contains n, negated or not. It does not use Match alone: a deny
// list that contains one of several aliases must not permit the others.
func (sel *Selection) lists(n string) bool { return sel.tls.Match(n) != sel.tls.Negated() }

// Iface returns the permitted use of an iface by its transport and its device, and the reason if
// it is restricted.
func (sel *Selection) Iface(i uct.IfaceInfo) (u Use, reason string) {
	u, reason = sel.Transport(i.Transport)
	if u == UseNone || int(i.Kind) >= len(sel.devices) {
		return u, reason
	}
	// A list names a device with its port, or without to permit all its ports: lo:1, lo.
	l := sel.devices[i.Kind]
	device, _, _ := strings.Cut(i.Device, ":")
	listed := l.Match(i.Device) != l.Negated() || l.Match(device) != l.Negated()
	if !l.All() && listed == l.Negated() {
		return UseNone, "device not allowed by " + sel.devicesText[i.Kind]
	}
	return u, reason
}

// Absent returns the devices that the settings allow by name and that none of the host's ifaces
// has. The reason is that of refused, if the device is among these. It returns nothing for a kind of
// which the host has no device.
func (sel *Selection) Absent(ifaces []uct.IfaceInfo, refused []uct.Refusal) (out []uct.Refusal) {
	for kind, l := range sel.devices {
		var names []string
		for _, i := range ifaces {
			if int(i.Kind) == kind {
				device, _, _ := strings.Cut(i.Device, ":")
				names = append(names, i.Device, device)
			}
		}
		if len(names) == 0 || l.Negated() {
			continue
		}
		slices.Sort(names)
		names = slices.Compact(names)
		for _, n := range l.Unmatched(append(names, "none")) {
			out = append(out, uct.Refusal{Device: n, Reason: fmt.Sprintf("%s, asked for by %s; there are %s", whyAbsent(n, refused), sel.devicesText[kind], strings.Join(names, ", "))})
		}
	}
	return out
}

// whyAbsent returns why no iface has the device n, which is named with its port or without. A domain that
// does not open is refused without a port.
func whyAbsent(n string, refused []uct.Refusal) string {
	device, _, _ := strings.Cut(n, ":")
	for _, r := range refused {
		all, _, _ := strings.Cut(r.Device, ":")
		if r.Device != "" && (r.Device == n || r.Device == device || all == n) {
			return "this device cannot be used (" + r.Reason + ")"
		}
	}
	return "no such device"
}
