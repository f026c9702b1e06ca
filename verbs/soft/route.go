package soft

import "github.com/goucx/goucx/verbs"

// route is the way to a peer's port, by the link that leads there.
type route struct {
	peer *device // in-process
}

// resolve finds the way to an address.
func (d *device) resolve(a *verbs.AHAttr) (route, error) {
	peer, err := d.conf.Switch.lookup(a.DGID)
	return route{peer: peer}, err
}
