package rc

import (
	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct"
)

const transportName = "rc"

// Atomics of RC QPs, all on 64-bit words: those without a result, and those with one.
const (
	postAtomics  uct.AtomicSet = 1 << uct.AtomicAdd
	fetchAtomics uct.AtomicSet = 1<<uct.AtomicAdd | 1<<uct.AtomicCompareSwap
)

// Component returns the provider of the rc transport for the devices of ps. shared are the
// tables of settings that ps reads.
func Component(ps nic.Providers, shared ...config.Table) uct.Component {
	return On(nic.Share(ps), shared...)
}

// On is Component for devices that are shared with other transports.
func On(ds *nic.Devices, shared ...config.Table) uct.Component {
	return nic.NewComponent(nic.Transport{
		Name: transportName, Aliases: []string{"rc_verbs", "rc_v", "ib"}, ID: uct.TransportRC, Settings: settings,
		RMA:      uct.OpsPut | uct.OpGetBcopy | uct.OpGetZcopy | uct.OpAtomics,
		Atomic64: fetchAtomics, Open: openIface,
	}, ds, shared...)
}
