package wireup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/uct"
)

// Use says what a transport may be used for.
type Use uint8

// Uses.
const (
	// UseNone: not at all.
	UseNone Use = iota
	// UseConnect: to connect other transports, never for data.
	UseConnect
	// UseAll: for everything.
	UseAll
)

// auxSuffix makes a name in UCX_TLS mean UseConnect.
const auxSuffix = ":aux"

// Selection is what the settings TLS, NET_DEVICES, SHM_DEVICES and SELF_DEVICES
// allow. It never changes.
type Selection struct {
	names   map[string][]string // transport: its name and aliases
	tls     config.List
	devices [3]config.List // by uct.DeviceKind
}

var deviceRows = [...]*config.Row[config.List]{
	uct.DeviceSelf: rowSelfDevices,
	uct.DeviceShm:  rowShmDevices,
	uct.DeviceNet:  rowNetDevices,
}

// Select reads the settings in s; nil: defaults. A name in UCX_TLS that is
// neither a transport nor an alias among components is an error that lists what
// is.
func Select(s *config.Set, components []uct.Component) (*Selection, error) {
	sel := &Selection{names: make(map[string][]string), tls: rowTLS.Get(s)}
	for kind, row := range deviceRows {
		sel.devices[kind] = row.Get(s)
	}
	var all []string
	for _, c := range components {
		names := append([]string{c.Name()}, c.Aliases()...)
		sel.names[c.Name()] = names
		for _, n := range names {
			all = append(all, n, n+auxSuffix)
		}
	}
	if unknown := sel.tls.Unmatched(all); len(unknown) > 0 {
		return nil, fmt.Errorf("setting %s%s: no transport %s; known are all%s",
			config.Prefix, rowTLS.Name(), strings.Join(quoted(unknown), ", "), known(components))
	}
	return sel, nil
}

// known lists the transports with their aliases: ", shm (sm, mm), self".
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

func quoted(names []string) []string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = fmt.Sprintf("%q", n)
	}
	return q
}

// Transport says what the transport of this name may be used for, and why not
// for everything. A name that Select was not given is refused by any list but
// all.
func (sel *Selection) Transport(name string) (u Use, reason string) {
	names := sel.names[name]
	if names == nil {
		names = []string{name}
	}
	listed := sel.tls.All() || slices.ContainsFunc(names, sel.lists)
	aux := slices.ContainsFunc(names, func(n string) bool { return sel.lists(n + auxSuffix) })
	switch {
	case sel.tls.Negated() && listed, !sel.tls.Negated() && !listed && !aux:
		return UseNone, fmt.Sprintf("not allowed by %s%s=%v", config.Prefix, rowTLS.Name(), sel.tls)
	case sel.tls.Negated() || listed:
		return UseAll, ""
	default:
		return UseConnect, fmt.Sprintf("allowed only for connecting by %s%s=%v", config.Prefix, rowTLS.Name(), sel.tls)
	}
}

// lists reports whether the list names n, negated or not. Allowing what a
// deny list would deny for one of several aliases would be wrong, hence no
// Match.
func (sel *Selection) lists(n string) bool { return sel.tls.Match(n) != sel.tls.Negated() }

// Iface says what an iface may be used for by its transport and its device, and
// why not for everything.
func (sel *Selection) Iface(i uct.IfaceInfo) (u Use, reason string) {
	u, reason = sel.Transport(i.Transport)
	if u == UseNone || int(i.Kind) >= len(sel.devices) {
		return u, reason
	}
	if l := sel.devices[i.Kind]; !l.Match(i.Device) {
		return UseNone, fmt.Sprintf("device not allowed by %s%s=%v", config.Prefix, deviceRows[i.Kind].Name(), l)
	}
	return u, reason
}
