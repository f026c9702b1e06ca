package perf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goucx/goucx/uct"
)

// findIface opens the domain of the one interface with the given names. An empty name matches any,
// if there is only one. A device name may omit the port.
func findIface(c *Config, transport, device string) (uct.Domain, uct.IfaceInfo, error) {
	var f finder
	for _, p := range c.Providers {
		if transport == "" || p.Name() == transport || slices.Contains(p.Aliases(), transport) {
			f.named++
			f.search(c, p, device)
		}
	}
	if len(f.found) == 1 {
		return f.found[0].domain, f.found[0].info, nil
	}
	for _, x := range f.found {
		f.errs = append(f.errs, x.domain.Close())
	}
	return nil, uct.IfaceInfo{}, errors.Join(append([]error{f.explain(c, transport, device)}, f.errs...)...)
}

type foundIface struct {
	domain uct.Domain
	info   uct.IfaceInfo
}

type finder struct {
	named   int // number of providers with that name
	found   []foundIface
	refused []string
	errs    []error
}

// search adds the matching interfaces of one provider, each with an open domain. It closes the
// other domains.
func (f *finder) search(c *Config, p uct.Component, device string) {
	infos, refused := p.Domains(c.Settings)
	f.refuse(refused)
	for _, i := range infos {
		d, err := p.OpenDomain(i, uct.DomainConfig{Settings: c.Settings, Log: c.Log})
		if err != nil {
			f.refused = append(f.refused, fmt.Sprintf("%s/%s: %v", p.Name(), i.Name, err))
			continue
		}
		ifaces, refused := d.Ifaces()
		f.refuse(refused)
		used := false
		for _, info := range ifaces {
			if name, _, _ := strings.Cut(info.Device, ":"); device == "" || device == info.Device || device == name {
				f.found = append(f.found, foundIface{d, info})
				used = true
				break
			}
			f.refused = append(f.refused, fmt.Sprintf("%s/%s: another device", info.Transport, info.Device))
		}
		if !used {
			f.errs = append(f.errs, d.Close())
		}
	}
}

func (f *finder) refuse(rs []uct.Refusal) {
	for _, r := range rs {
		f.refused = append(f.refused, r.String())
	}
}

// explain returns the reason why there is not exactly one match.
func (f *finder) explain(c *Config, transport, device string) error {
	switch {
	case f.named == 0:
		var known []string
		for _, p := range c.Providers {
			for _, n := range append([]string{p.Name()}, p.Aliases()...) {
				if !slices.Contains(known, n) { // ib is both rc and ud
					known = append(known, n)
				}
			}
		}
		return fmt.Errorf("unknown transport %q; known are %s", transport, strings.Join(known, " "))
	case len(f.found) == 0:
		return fmt.Errorf("no interface for transport %q and device %q: %s", transport, device, strings.Join(f.refused, "; "))
	}
	var names []string
	for _, x := range f.found {
		names = append(names, x.info.Transport+"/"+x.info.Device)
	}
	return fmt.Errorf("a UCT test needs a transport (-x) and a device (-d); there are %s", strings.Join(names, " "))
}
