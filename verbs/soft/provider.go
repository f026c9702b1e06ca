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

// Provider opens soft devices. Devices that one provider opens on the in-process
// link reach each other.
type Provider struct {
	conf Config
	sw   *Switch

	mu    sync.Mutex
	known []site // as Devices listed them
}

// New makes a provider; what is wrong with c, Devices and Open tell.
func New(c Config) *Provider {
	p := &Provider{conf: c, sw: c.Switch}
	if p.sw == nil {
		p.sw = NewSwitch()
	}
	return p
}

// Name is "soft".
func (p *Provider) Name() string { return ProviderName }

// site is a place where a device can be opened.
type site struct {
	info verbs.DeviceInfo
	addr netip.Addr // of UDP
	mtu  verbs.MTU  // the largest there
}

// Devices lists the in-process device, and a UDP device for each address of the
// host's interfaces: its name is the interface's, with a number from the second
// address on. There are none where the system refuses a call that packets need. An error
// may come with what there is nevertheless.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) {
	sites, err := p.sites()
	p.mu.Lock()
	p.known = sites
	p.mu.Unlock()
	infos := make([]verbs.DeviceInfo, len(sites))
	for i := range sites {
		infos[i] = sites[i].info
	}
	return infos, err
}

// Open opens a device of the list. On the in-process link each is a new device
// with an address of its own.
func (p *Provider) Open(info verbs.DeviceInfo) (verbs.Context, error) {
	s, err := p.site(info)
	if err != nil {
		return nil, fmt.Errorf("open soft device %q: %w", info.Name, err)
	}
	d, err := open(p, &s)
	if err != nil {
		return nil, fmt.Errorf("open soft device %q: %w", info.Name, err)
	}
	return d, nil
}

// site finds where a device can be opened: as Devices listed it last, or else
// where it is now.
func (p *Provider) site(info verbs.DeviceInfo) (site, error) {
	is := func(s site) bool { return s.info == info }
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if i := slices.IndexFunc(known, is); i >= 0 {
		return known[i], nil
	}
	sites, err := p.sites()
	if i := slices.IndexFunc(sites, is); i >= 0 {
		return sites[i], nil
	}
	if err == nil {
		err = fmt.Errorf("not in the list: %w", ucs.ErrInvalid)
	}
	return site{}, err
}

func (p *Provider) sites() ([]site, error) {
	if err := p.conf.Validate(); err != nil {
		return nil, err
	}
	var sites []site
	if p.conf.Fabric != nil {
		info := verbs.DeviceInfo{Provider: ProviderName, Name: LinkFabric, Link: LinkFabric}
		return []site{{info: info, addr: p.conf.Addr, mtu: verbs.MTU4096}}, nil
	}
	if p.conf.Link != LinkUDP {
		info := verbs.DeviceInfo{Provider: ProviderName, Name: LinkInproc, Link: LinkInproc}
		sites = append(sites, site{info: info, mtu: verbs.MTU20480})
	}
	if p.conf.Link == LinkInproc || p.conf.Link == "" && runtime.GOOS != "linux" {
		return sites, nil // the UDP link is Linux's
	}
	if err := tryUDP(); err != nil {
		return sites, fmt.Errorf("no UDP devices: %w", err)
	}
	ifs, err := net.Interfaces()
	if err != nil {
		return sites, fmt.Errorf("list network interfaces: %w", err)
	}
	found := false
	for i := range ifs {
		addrs, err := ifs[i].Addrs()
		if err != nil || ifs[i].Flags&net.FlagUp == 0 {
			continue // it went away meanwhile, or is down
		}
		n := 0
		for _, a := range usable(addrs) {
			n++
			if p.conf.Addr.IsValid() && p.conf.Addr.Unmap() != a {
				continue
			}
			found = true
			sites = append(sites, udpSite(&ifs[i], a, n))
		}
	}
	if p.conf.Addr.IsValid() && !found {
		return sites, fmt.Errorf("soft device: no interface that is up has address %v: %w", p.conf.Addr, ucs.ErrInvalid)
	}
	return sites, nil
}

// usable are the addresses that a GID names completely: no zone stands in it.
func usable(addrs []net.Addr) []netip.Addr {
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

// mtuHeaders is what stands around the payload of the longest packet in an IP
// packet: IPv6, UDP, BTH, AtomicETH, ICRC.
const mtuHeaders = 40 + 8 + 12 + 28 + 4

// udpSite is the n-th address of an interface.
func udpSite(i *net.Interface, a netip.Addr, n int) site {
	name := i.Name
	if n > 1 {
		name = fmt.Sprintf("%s.%d", name, n)
	}
	mtu := verbs.MTU20480
	for mtu > verbs.MTU256 && mtu.Bytes()+mtuHeaders > i.MTU {
		mtu--
	}
	info := verbs.DeviceInfo{Provider: ProviderName, Name: name, Net: i.Name, Link: LinkUDP}
	return site{info: info, addr: a, mtu: mtu}
}
