package ucptest

import (
	"testing"

	"github.com/goucx/goucx/transports"
)

func TestUCP(t *testing.T) {
	for _, p := range transports.All() {
		t.Run(p.Name(), func(t *testing.T) { Run(t, p) })
	}
}
