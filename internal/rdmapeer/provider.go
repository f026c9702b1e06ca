package main

import (
	"fmt"
	"strings"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/ibv"
	"github.com/goucx/goucx/verbs/soft"
)

// providers has one row per provider of devices.
var providers = []struct {
	name   string
	create func(p *plan) verbs.Provider
}{
	{soft.ProviderName, newSoft},
	{ibv.ProviderName, newIBV},
}

// newSoft returns the provider of the soft device with the plan's address and faults.
func newSoft(p *plan) verbs.Provider {
	c := soft.Config{Link: soft.LinkUDP, Addr: p.addr, Port: p.udpPort}
	if !p.events { // it polls all the time
		c.Engine = soft.EngineInline
	}
	if p.loss > 0 {
		c.Faults = &soft.Faults{Seed: 1, Loss: p.loss}
	}
	return soft.New(c)
}

// newIBV returns the provider of RDMA hardware, and of the kernel's drivers.
func newIBV(p *plan) verbs.Provider {
	return ibv.New(ibv.Config{GIDIndex: max(p.gidIndex, 0), HasGIDIndex: p.gidIndex >= 0})
}

func providerNames() (names []string) {
	for _, r := range providers {
		names = append(names, r.name)
	}
	return names
}

// openDevice opens the device that the plan names.
func openDevice(p *plan) (verbs.Context, error) {
	for _, r := range providers {
		if r.name != p.provider {
			continue
		}
		provider := r.create(p)
		devices, err := provider.Devices()
		var names []string
		for _, d := range devices {
			if p.device == "" || d.Name == p.device {
				return provider.Open(d)
			}
			names = append(names, d.Name)
		}
		if err == nil {
			err = fmt.Errorf("no device %q, have: %s", p.device, strings.Join(names, " "))
		}
		return nil, fmt.Errorf("provider %s: %w", r.name, err)
	}
	return nil, fmt.Errorf("-provider %s, want one of %s", p.provider, strings.Join(providerNames(), " "))
}
