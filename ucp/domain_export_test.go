package ucp

import "github.com/goucx/goucx/uct"

// KeyDomains gives the domains that a packed key has entries for, with the
// transport of each.
func KeyDomains(k Key) (map[uint8]uct.TransportID, error) {
	v, err := parseKey(k)
	ds := make(map[uint8]uct.TransportID)
	for _, e := range v.entries {
		ds[e.domain] = e.transport
	}
	return ds, err
}
