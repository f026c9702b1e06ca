package transports

import (
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/rc"
	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/transports/shm"
	"github.com/goucx/goucx/transports/ud"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/ibv"
	"github.com/goucx/goucx/verbs/soft"
)

// All returns one provider of each transport, the one for the nearest peers first.
func All() []uct.Component {
	devices := nic.Share(Verbs)
	return []uct.Component{self.Component(), shm.Component(), rc.On(devices, ibvSettings, softSettings), ud.On(devices, ibvSettings, softSettings)}
}

// Verbs returns the verbs providers that the settings select: RDMA devices, if the program was built
// with the tag ibverbs, and the software RNIC. A nil s has the defaults; a nil log discards
// everything.
func Verbs(s *config.Set, log *zap.Logger) []verbs.Provider {
	c := SoftConfig(s, log)
	c.Switch = program
	if ibv.Built() != nil {
		return []verbs.Provider{soft.New(c)}
	}
	return []verbs.Provider{ibv.New(IBVConfig(s)), soft.New(c)}
}

// program is the in-process link. It connects all devices of the program.
var program = soft.NewSwitch()
