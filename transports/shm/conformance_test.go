package shm

import (
	"testing"

	"github.com/goucx/goucx/uct/ucttest"
)

var factory = ucttest.Factory{Component: Component()}

func TestConformance(t *testing.T) { ucttest.Run(t, factory) }

func TestGateAllocs(t *testing.T) { ucttest.Gates(t, factory) }
