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
		if e.transport != keyEmulated {
			ds[e.domain] = e.transport
		}
	}
	return ds, err
}

// WithoutDomains is the key of an owner that registered the memory with no domain.
func WithoutDomains(k Key) Key {
	return without(k, func(keyEntry) bool { return true })
}

// WithoutSoftware is the key of an owner that does nothing by messages.
func WithoutSoftware(k Key) Key {
	return without(k, func(e keyEntry) bool { return e.transport == keyEmulated })
}

func without(k Key, entry func(keyEntry) bool) Key {
	v, err := parseKey(k)
	if err != nil {
		return k
	}
	v.entries = slices.DeleteFunc(v.entries, entry)
	k, _ = v.append(nil)
	return k
}
