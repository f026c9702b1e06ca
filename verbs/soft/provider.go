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
	"github.com/goucx/goucx/verbs/soft/internal/udp"
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
	// uarPages are the UAR pages that the contexts of a device have.
	uarPages map[verbs.DeviceInfo]int
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
	addr netip.Addr // of the UDP device: that of GID 0
	more []netip.Addr
	mtu  verbs.MTU // the largest that the interface carries
}

// Devices lists the in-process device, and one UDP device for each address of the
// host's interfaces, or with Config.AllGIDs for each interface. A UDP device has the interface's name; from the second address on
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
	fail := func(err error) (verbs.Context, error) {
		return nil, fmt.Errorf("open soft device %q: %w", info.Name, err)
	}
	p.mu.Lock()
	specs := p.listed
	p.mu.Unlock()
	is := func(s deviceSpec) bool { return s.info == info }
	i := slices.IndexFunc(specs, is)
	if i < 0 { // it may have come up since the last list
		var err error
		specs, err = p.listSpecs()
		if i = slices.IndexFunc(specs, is); i < 0 {
			if err == nil {
				err = fmt.Errorf("not in the list: %w", ucs.ErrInvalid)
			}
			return fail(err)
		}
	}
	d, err := open(p, &specs[i])
	if err != nil {
		return fail(err)
	}
	return d, nil
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
	if err := udp.Probe(); err != nil {
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
		mtu := verbs.MTU20480
		for mtu > verbs.MTU256 && mtu.Bytes()+mtuHeaders > ifs[i].MTU {
			mtu--
		}
		var all []netip.Addr // of AllGIDs
		n := 0
		for _, a := range addrs {
			ipNet, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ip, ok := netip.AddrFromSlice(ipNet.IP)
			ip = ip.Unmap()
			if !ok || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
				continue // a GID has no room for a zone
			}
			n++
			if p.conf.AllGIDs {
				all = append(all, ip)
				continue
			}
			if p.conf.Addr.IsValid() && p.conf.Addr.Unmap() != ip {
				continue
			}
			found = true
			name := ifs[i].Name
			if n > 1 {
				name = fmt.Sprintf("%s.%d", name, n)
			}
			info := verbs.DeviceInfo{Provider: ProviderName, Name: name, Net: ifs[i].Name, Link: LinkUDP}
			specs = append(specs, deviceSpec{info: info, addr: ip, mtu: mtu})
		}
		if k, ok := p.firstGID(all); ok {
			found = true
			all[0], all[k] = all[k], all[0]
			info := verbs.DeviceInfo{Provider: ProviderName, Name: ifs[i].Name, Net: ifs[i].Name, Link: LinkUDP}
			specs = append(specs, deviceSpec{info: info, addr: all[0], more: all[1:min(len(all), maxGIDs)], mtu: mtu})
		}
	}
	if p.conf.Addr.IsValid() && !found {
		return specs, fmt.Errorf("soft device: no interface that is up has address %v: %w", p.conf.Addr, ucs.ErrInvalid)
	}
	return specs, nil
}

// firstGID returns the index of the address that is GID 0 of a device with all of these
// addresses; false: the device is not wanted.
func (p *Provider) firstGID(all []netip.Addr) (int, bool) {
	if p.conf.Addr.IsValid() {
		i := slices.Index(all, p.conf.Addr.Unmap())
		return i, i >= 0
	}
	return 0, len(all) > 0
}

// mtuHeaders is the most bytes of an IP packet beside the payload: IPv6, UDP, BTH,
// AtomicETH, ICRC.
const mtuHeaders = 40 + 8 + 12 + 28 + 4
