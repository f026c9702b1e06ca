package ud

import (
	"testing"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/uct/ucttest"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// over gives the devices of one provider.
func over(c soft.Config) nic.Providers {
	p := soft.New(c)
	return func(*config.Set, *zap.Logger) []verbs.Provider { return []verbs.Provider{p} }
}

func inproc() nic.Providers { return over(soft.Config{Link: soft.LinkInproc}) }

func TestConformance(t *testing.T) { ucttest.Run(t, ucttest.Factory{Component: Component(inproc())}) }

func TestGateAllocs(t *testing.T) { ucttest.Gates(t, ucttest.Factory{Component: Component(inproc())}) }
