package ud

import (
	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct"
)

const transportName = "ud"

// Component gives the provider of the ud transport on the devices of ps,
// which read the settings shared.
func Component(ps nic.Providers, shared ...config.Table) uct.Component {
	return On(nic.Share(ps), shared...)
}

// On is Component on devices that other transports use, too.
func On(ds *nic.Devices, shared ...config.Table) uct.Component {
	return nic.NewComponent(nic.Transport{
		Name: transportName, Aliases: []string{"ud_verbs", "ud_v", "ib"}, ID: uct.TransportUD, Settings: settings, Open: openIface,
	}, ds, shared...)
}
