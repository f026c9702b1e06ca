package transports_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/rc"
	"github.com/goucx/goucx/transports/ud"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/wireup"
)

// adapter is a provider of devices that say that they are hardware.
type adapter struct{ verbs.Provider }

type adapterContext struct {
	verbs.Context
	info verbs.DeviceInfo
}

func (a adapter) Name() string { return "ibv" }

func (a adapter) Devices() ([]verbs.DeviceInfo, error) {
	ds, err := a.Provider.Devices()
	for i := range ds {
		ds[i] = asAdapter(ds[i])
	}
	return ds, err
}

func asAdapter(d verbs.DeviceInfo) verbs.DeviceInfo {
	return verbs.DeviceInfo{Provider: "ibv", Name: "mlx5_" + d.Name, Net: d.Net}
}

func (a adapter) Open(d verbs.DeviceInfo) (verbs.Context, error) {
	ds, err := a.Provider.Devices()
	if err != nil {
		return nil, err
	}
	c, err := a.Provider.Open(ds[0])
	return adapterContext{c, asAdapter(ds[0])}, err
}

func (c adapterContext) Info() verbs.DeviceInfo { return c.info }

// TestSoftwareComesLast: between hosts with adapters the software RNIC is the last
// choice for every purpose, whichever device is listed first.
func TestSoftwareComesLast(t *testing.T) {
	conf := soft.Config{Link: soft.LinkUDP, Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	software, hardware := soft.New(conf), adapter{soft.New(conf)}
	for name, ps := range map[string][]verbs.Provider{
		"hardware first": {hardware, software}, "software first": {software, hardware},
	} {
		devices := func(*config.Set, *zap.Logger) []verbs.Provider { return ps }
		for _, c := range []uct.Component{rc.Component(devices), ud.Component(devices)} {
			t.Run(c.Name()+" "+name, func(t *testing.T) {
				here, there := interfaces(t, c, 1), interfaces(t, c, 2)
				b, _, err := wireup.Build(wireup.View{}, there)
				require.NoError(t, err)
				remote, err := wireup.Parse(b)
				require.NoError(t, err)
				wants := []wireup.Purpose{wireup.ForAM, wireup.ForRMA, wireup.ForAMO}
				if c.Name() == "ud" {
					wants = wants[:1]
				}
				plan, refused := wireup.Choose(here, remote, wants...)
				require.Empty(t, refused)
				isSoft := func(l wireup.LocalIface) bool { return !strings.HasPrefix(l.Info.Device, "mlx5") }
				for _, p := range wants {
					require.Len(t, plan[p], 4, "%v: each with each", p)
					first, last := plan[p][0], plan[p][3]
					require.Equal(t, [2]bool{}, [2]bool{isSoft(here[first.Local]), isSoft(there[first.Remote])}, "%v", p)
					require.Equal(t, [2]bool{true, true}, [2]bool{isSoft(here[last.Local]), isSoft(there[last.Remote])}, "%v", p)
				}
			})
		}
	}
}

// interfaces opens those of a worker on all devices.
func interfaces(t *testing.T, c uct.Component, worker byte) (all []wireup.LocalIface) {
	infos, _ := c.Domains(nil)
	for n, i := range infos {
		d, err := c.OpenDomain(i, uct.DomainConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		ports, refused := d.Ifaces()
		require.Empty(t, refused)
		for _, p := range ports {
			f, err := d.OpenIface(p, uct.IfaceConfig{Handler: ignore{}, Worker: uct.UUID{worker}})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, f.Close()) })
			all = append(all, wireup.LocalIface{Info: p, Attr: f.Attr(), Domain: n, Iface: f})
		}
	}
	return all
}

// ignore is a handler of what nobody sends.
type ignore struct{}

func (ignore) HandleEvents([]uct.Event)           {}
func (ignore) HandleAM([]byte, []uct.Desc) uint64 { return 0 }
func (ignore) HandlePending(ts []uct.Token) int   { return len(ts) }
func (ignore) HandleFailure(uct.Failure)          {}
