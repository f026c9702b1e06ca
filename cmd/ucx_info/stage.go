package main

import (
	"errors"
	"slices"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// stage holds the domains and ifaces that a worker would open under given settings, so that lane
// selection can be shown with its reasons.
type stage struct {
	worker    uct.UUID
	selection *wireup.Selection
	set       *config.Set
	domains   []openDomain
	infos     []uct.IfaceInfo // all ifaces of the domains
	ifaces    []wireup.LocalIface
	refused   []uct.Refusal
	closers   []func() error // in the order of opening
}

type openDomain struct {
	uct.Domain
	component int // index among the providers
	name      string
}

// openStage opens what the settings allow and records the reason for everything refused. The
// caller closes the stage.
func openStage(providers []uct.Component, set *config.Set) (*stage, error) {
	sel, err := wireup.Select(set, providers)
	if err != nil {
		return nil, err
	}
	s := &stage{worker: newUUID(), selection: sel, set: set, refused: sel.Missing()}
	for i, p := range providers {
		s.openComponent(i, p)
	}
	s.refused = append(s.refused, sel.Absent(s.infos, s.refused)...)
	return s, nil
}

func (s *stage) openComponent(n int, p uct.Component) {
	if use, reason := s.selection.Transport(p.Name()); use != wireup.UseAll {
		s.refuse(p.Name(), "", reason)
		return
	}
	infos, refused := p.Domains(s.set)
	s.refused = append(s.refused, refused...)
	for _, i := range infos {
		d, err := p.OpenDomain(i, uct.DomainConfig{Settings: s.set})
		if err != nil {
			s.refuse(p.Name(), i.Name, err.Error())
			continue
		}
		s.closers = append(s.closers, d.Close)
		s.domains = append(s.domains, openDomain{d, n, i.Name})
		s.openIfaces(d, len(s.domains)-1)
	}
}

func (s *stage) openIfaces(d uct.Domain, number int) {
	infos, refused := d.Ifaces()
	s.infos = append(s.infos, infos...)
	s.refused = append(s.refused, refused...)
	for _, i := range infos {
		if use, reason := s.selection.Iface(i); use != wireup.UseAll {
			s.refuse(i.Transport, i.Device, reason)
			continue
		}
		f, err := d.OpenIface(i, uct.IfaceConfig{Handler: nullHandler{}, Worker: s.worker, Settings: s.set})
		if err != nil {
			s.refuse(i.Transport, i.Device, err.Error())
			continue
		}
		s.closers = append(s.closers, f.Close)
		s.ifaces = append(s.ifaces, wireup.LocalIface{Info: i, Attr: f.Attr(), Domain: number, Iface: f})
	}
}

func (s *stage) refuse(transport, device, reason string) {
	s.refused = append(s.refused, uct.Refusal{Transport: transport, Device: device, Reason: reason})
}

// refusedBeyond returns what this stage, as the peer of other, refuses and other does not.
func (s *stage) refusedBeyond(other *stage) []uct.Refusal {
	var out []uct.Refusal
	for _, r := range s.refused {
		if !slices.ContainsFunc(other.refused, func(o uct.Refusal) bool { return o.Transport == r.Transport && o.Device == r.Device }) {
			r.Reason = "at the peer: " + r.Reason
			out = append(out, r)
		}
	}
	return out
}

// address returns the stage's worker address, decoded.
func (s *stage) address() (wireup.View, error) {
	b, refused, err := wireup.Build(wireup.View{Worker: s.worker}, s.ifaces)
	if err != nil {
		return wireup.View{}, err
	}
	s.refused = append(s.refused, refused...)
	return wireup.Parse(b)
}

// close closes everything in reverse order of opening.
func (s *stage) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}
