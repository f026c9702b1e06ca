package ucp

import (
	"slices"

	"github.com/goucx/goucx/uct"
)

// KeyDomains gives the domains that a packed key has entries for, with the
// transport of each.
func KeyDomains(k Key) (map[uint8]uct.TransportID, error) {
	v, err := parseKey(k)
	ds := make(map[uint8]uct.TransportID)
	for _, e := range v.entries {
		if e.transport != keySoftware {
			ds[e.domain] = e.transport
		}
	}
	return ds, err
}

// WithoutSoftware is the key of an owner that does nothing by messages.
func WithoutSoftware(k Key) Key {
	v, err := parseKey(k)
	if err != nil {
		return k
	}
	v.entries = slices.DeleteFunc(v.entries, func(e keyEntry) bool { return e.transport == keySoftware })
	k, _ = v.append(nil)
	return k
}
