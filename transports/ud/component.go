package ud

import (
	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct"
)

const transportName = "ud"

// Component returns the ud component on the devices of ps. shared are the setting tables
// that those devices read.
func Component(ps nic.Providers, shared ...config.Table) uct.Component {
	return On(nic.Share(ps), shared...)
}

// On is like Component, on devices that other transports use too.
func On(ds *nic.Devices, shared ...config.Table) uct.Component {
	return nic.NewComponent(nic.Transport{
		Name: transportName, Aliases: []string{"ud_verbs", "ud_v", "ib"}, ID: uct.TransportUD, Settings: settings, Open: openIface,
	}, ds, shared...)
}
