package soft

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// ProviderName is Provider.Name.
const ProviderName = "soft"

// Provider opens soft devices. The in-process devices of one provider can reach each
// other.
type Provider struct {
	conf Config
	sw   *Switch

	mu     sync.Mutex
	listed []deviceSpec // the last result of Devices
}

// New returns a provider. Errors in c are reported by Devices and Open.
func New(c Config) *Provider {
	p := &Provider{conf: c, sw: c.Switch}
	if p.sw == nil {
		p.sw = NewSwitch()
	}
	return p
}

// Name returns "soft".
func (p *Provider) Name() string { return ProviderName }

// deviceSpec describes a device that can be opened.
type deviceSpec struct {
	info verbs.DeviceInfo
	addr netip.Addr // of the UDP device
	mtu  verbs.MTU  // the largest that the interface carries
}

// Devices lists the in-process device, and one UDP device for each address of the
// host's interfaces. A UDP device has the interface's name; from the second address on
// a number is appended. There are no UDP devices if the system refuses one of the calls
// that transfer packets. Devices may return both an error and devices.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) {
	specs, err := p.listSpecs()
	p.mu.Lock()
	p.listed = specs
	p.mu.Unlock()
	infos := make([]verbs.DeviceInfo, len(specs))
	for i := range specs {
		infos[i] = specs[i].info
	}
	return infos, err
}

// Open opens a device of the list. On the in-process link each call opens a new device
// with its own address.
func (p *Provider) Open(info verbs.DeviceInfo) (verbs.Context, error) {
	s, err := p.findSpec(info)
	if err != nil {
		return nil, fmt.Errorf("open soft device %q: %w", info.Name, err)
	}
	d, err := open(p, &s)
	if err != nil {
		return nil, fmt.Errorf("open soft device %q: %w", info.Name, err)
	}
	return d, nil
}

// findSpec looks info up in the last list, or else in a new one.
func (p *Provider) findSpec(info verbs.DeviceInfo) (deviceSpec, error) {
	is := func(s deviceSpec) bool { return s.info == info }
	p.mu.Lock()
	listed := p.listed
	p.mu.Unlock()
	if i := slices.IndexFunc(listed, is); i >= 0 {
		return listed[i], nil
	}
	specs, err := p.listSpecs()
	if i := slices.IndexFunc(specs, is); i >= 0 {
		return specs[i], nil
	}
	if err == nil {
		err = fmt.Errorf("not in the list: %w", ucs.ErrInvalid)
	}
	return deviceSpec{}, err
}

func (p *Provider) listSpecs() ([]deviceSpec, error) {
	if err := p.conf.Validate(); err != nil {
		return nil, err
	}
	var specs []deviceSpec
	if p.conf.Fabric != nil {
		info := verbs.DeviceInfo{Provider: ProviderName, Name: LinkFabric, Link: LinkFabric}
		return []deviceSpec{{info: info, addr: p.conf.Addr, mtu: verbs.MTU4096}}, nil
	}
	if p.conf.Link != LinkUDP {
		info := verbs.DeviceInfo{Provider: ProviderName, Name: LinkInproc, Link: LinkInproc}
		specs = append(specs, deviceSpec{info: info, mtu: verbs.MTU20480})
	}
	if p.conf.Link == LinkInproc || p.conf.Link == "" && runtime.GOOS != "linux" {
		return specs, nil // the UDP link needs Linux
	}
	if err := tryUDP(); err != nil {
		return specs, fmt.Errorf("no UDP devices: %w", err)
	}
	ifs, err := net.Interfaces()
	if err != nil {
		return specs, fmt.Errorf("list network interfaces: %w", err)
	}
	found := false
	for i := range ifs {
		addrs, err := ifs[i].Addrs()
		if err != nil || ifs[i].Flags&net.FlagUp == 0 {
			continue // it was removed meanwhile, or is down
		}
		n := 0
		for _, a := range usableAddrs(addrs) {
			n++
			if p.conf.Addr.IsValid() && p.conf.Addr.Unmap() != a {
				continue
			}
			found = true
			specs = append(specs, udpSpec(&ifs[i], a, n))
		}
	}
	if p.conf.Addr.IsValid() && !found {
		return specs, fmt.Errorf("soft device: no interface that is up has address %v: %w", p.conf.Addr, ucs.ErrInvalid)
	}
	return specs, nil
}

// usableAddrs returns the addresses that a GID can represent: it has no room for a zone.
func usableAddrs(addrs []net.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		if ip = ip.Unmap(); ok && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified() {
			out = append(out, ip)
		}
	}
	return out
}

// mtuHeaders is the most bytes of an IP packet beside the payload: IPv6, UDP, BTH,
// AtomicETH, ICRC.
const mtuHeaders = 40 + 8 + 12 + 28 + 4

// udpSpec describes the device of an interface's n-th address.
func udpSpec(i *net.Interface, a netip.Addr, n int) deviceSpec {
	name := i.Name
	if n > 1 {
		name = fmt.Sprintf("%s.%d", name, n)
	}
	mtu := verbs.MTU20480
	for mtu > verbs.MTU256 && mtu.Bytes()+mtuHeaders > i.MTU {
		mtu--
	}
	info := verbs.DeviceInfo{Provider: ProviderName, Name: name, Net: i.Name, Link: LinkUDP}
	return deviceSpec{info: info, addr: a, mtu: mtu}
}
