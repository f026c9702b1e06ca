package transports

import (
	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/transports/shm"
	"github.com/goucx/goucx/uct"
)

// All gives one provider of each transport, the nearest first.
func All() []uct.Component {
	return []uct.Component{self.Component(), shm.Component()}
}
