package rc

import (
	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct"
)

const transportName = "rc"

// Atomics that queue pairs carry, of 64 bits: without a result, and with.
const (
	postAtomics  uct.AtomicSet = 1 << uct.AtomicAdd
	fetchAtomics uct.AtomicSet = 1<<uct.AtomicAdd | 1<<uct.AtomicCompareSwap
)

// Component gives the provider of the rc transport on the devices of ps,
// which read the settings shared.
func Component(ps nic.Providers, shared ...config.Table) uct.Component {
	return On(nic.Share(ps), shared...)
}

// On is Component on devices that other transports use, too.
func On(ds *nic.Devices, shared ...config.Table) uct.Component {
	return nic.NewComponent(nic.Transport{
		Name: transportName, Aliases: []string{"rc_verbs", "rc_v", "ib"}, ID: uct.TransportRC, Settings: settings,
		RMA:      uct.OpsPut | uct.OpGetBcopy | uct.OpGetZcopy | uct.OpAtomics,
		Atomic64: fetchAtomics, Open: openIface,
	}, ds, shared...)
}
