package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/uct"
)

// componentView describes what one provider offers on this machine.
type componentView struct {
	Name    string       `json:"name"`
	Aliases []string     `json:"aliases"`
	Domains []domainView `json:"domains"`
	Refused []refusal    `json:"refused"`
}

type domainView struct {
	Name       string         `json:"name"`
	Attr       uct.DomainAttr `json:"-"`
	Register   bound          `json:"max_register"` // 0: not supported
	Allocate   bound          `json:"max_allocate"`
	KeyLen     int            `json:"remote_key_bytes"`
	Mapped     bool           `json:"rkey_ptr"` // a peer's memory can be mapped
	Interfaces []ifaceView    `json:"interfaces"`
}

type ifaceView struct {
	Info          uct.IfaceInfo `json:"-"`
	Attr          uct.IfaceAttr `json:"-"`
	Transport     string        `json:"transport"`
	Device        string        `json:"device"`
	Kind          string        `json:"type"`
	SystemDevice  string        `json:"system_device"`
	DeviceAddress int           `json:"device_address_bytes"`
	IfaceAddress  int           `json:"interface_address_bytes"`
	// DevicePriority is the same for all devices: lane selection orders equal ones by their domains.
	DevicePriority int `json:"device_priority"`
	// DevicePaths is 1: a lane is one connection.
	DevicePaths int `json:"device_num_paths"`
	// MaxEndpoints counts those whose connections have memory or a queue pair at once.
	MaxEndpoints count        `json:"max_eps"`
	Capabilities capabilities `json:"capabilities"`
}

// refusal is a uct.Refusal with JSON field names.
type refusal struct {
	Transport string `json:"transport"`
	Device    string `json:"device,omitempty"`
	Reason    string `json:"reason"`
}

func (r refusal) String() string { return uct.Refusal(r).String() }

func refusals(rs []uct.Refusal) []refusal {
	out := make([]refusal, len(rs))
	for i, r := range rs {
		out[i] = refusal(r)
	}
	return out
}

// survey opens everything that the providers offer, whatever UCX_TLS permits, reads the attributes
// and closes it again.
func survey(providers []uct.Component, set *config.Set) ([]componentView, error) {
	views := make([]componentView, 0, len(providers))
	var errs []error
	for _, p := range providers {
		v, err := describeComponent(p, set)
		views = append(views, v)
		errs = append(errs, err)
	}
	return views, errors.Join(errs...)
}

// describeComponent describes one component. It returns an error if closing fails. What does not open
// is listed as refused.
func describeComponent(p uct.Component, set *config.Set) (componentView, error) {
	infos, refused := p.Domains(set)
	v := componentView{Name: p.Name(), Aliases: append([]string{}, p.Aliases()...), Domains: []domainView{}, Refused: refusals(refused)}
	var errs []error
	for _, i := range infos {
		d, err := p.OpenDomain(i, uct.DomainConfig{Settings: set})
		if err != nil {
			v.Refused = append(v.Refused, refusal{p.Name(), i.Name, err.Error()})
			continue
		}
		errs = append(errs, v.describeDomain(d, i, set), d.Close())
	}
	return v, errors.Join(errs...)
}

func (v *componentView) describeDomain(d uct.Domain, i uct.DomainInfo, set *config.Set) error {
	infos, refused := d.Ifaces()
	v.Refused = append(v.Refused, refusals(refused)...)
	view := domainView{Name: i.Name, Attr: *d.Attr(), KeyLen: d.Attr().KeyLen, Interfaces: []ifaceView{}}
	if view.Attr.Register {
		view.Register = bound(view.Attr.MaxRegister)
	}
	if view.Attr.Allocate {
		view.Allocate = bound(view.Attr.MaxAllocate)
	}
	var errs []error
	if view.Attr.Allocate {
		var err error
		view.Mapped, err = maps(d)
		errs = append(errs, err)
	}
	for _, i := range infos {
		f, err := d.OpenIface(i, uct.IfaceConfig{Handler: nullHandler{}, Worker: newUUID(), Settings: set})
		if err != nil {
			v.Refused = append(v.Refused, refusal{i.Transport, i.Device, err.Error()})
			continue
		}
		view.Interfaces = append(view.Interfaces, describeIface(f, i))
		if err := f.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s/%s: %w", i.Transport, i.Device, err))
		}
	}
	v.Domains = append(v.Domains, view)
	return errors.Join(errs...)
}

// maps reports whether an unpacked key of the domain maps the memory, as rkey_ptr does in UCX. It
// registers memory of this process to find out.
func maps(d uct.Domain) (bool, error) {
	m, err := d.Allocate(os.Getpagesize(), uct.MemRemote)
	if err != nil {
		return false, nil // a limit of this host
	}
	defer func() { _ = m.Close() }()
	k, err := d.UnpackKey(m.AppendKey(nil))
	if err != nil {
		return false, fmt.Errorf("unpack a key of this process: %w", err)
	}
	defer d.ReleaseKey(k)
	return d.KeyAttr(k).Bytes != nil, nil
}

func describeIface(f uct.Iface, i uct.IfaceInfo) ifaceView {
	a := *f.Attr()
	return ifaceView{
		Info: i, Attr: a, Transport: i.Transport, Device: i.Device, Kind: kindTitles[i.Kind],
		SystemDevice: "<unknown>", DevicePaths: 1, MaxEndpoints: count(a.MaxConnections),
		DeviceAddress: len(f.DeviceAddress(nil)), IfaceAddress: len(f.Address(nil)),
		Capabilities: capabilitiesOf(&a),
	}
}

// kindTitles are UCX's terms.
var kindTitles = map[uct.DeviceKind]string{
	uct.DeviceSelf: "loopback", uct.DeviceShm: "intra-node", uct.DeviceNet: "network",
}

func newUUID() (u uct.UUID) {
	_, _ = rand.Read(u[:]) // never fails; see crypto/rand
	return u
}

// nullHandler is the handler of an iface without peers.
type nullHandler struct{}

func (nullHandler) HandleEvents([]uct.Event)             {}
func (nullHandler) HandleAM([]byte, []uct.Desc) uint64   { return 0 }
func (nullHandler) HandlePending(tokens []uct.Token) int { return len(tokens) }
func (nullHandler) HandleFailure(uct.Failure)            {}
