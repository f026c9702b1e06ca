package goucx

import (
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

// Open opens a context. The zero Config uses every transport, and the settings from configuration
// files and the environment. Providers, if set, replaces the built-in transports.
func Open(c ucp.Config) (*ucp.Context, error) {
	if c.Providers == nil {
		c.Providers = transports.All()
	}
	return ucp.Open(c)
}
