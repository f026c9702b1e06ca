package ucp

import (
	"slices"

	"github.com/goucx/goucx/ucp/internal/keycodec"
	"github.com/goucx/goucx/uct"
)

// KeyDomains gives the domains that a packed key has entries for, with the
// transport of each.
func KeyDomains(k Key) (map[uint8]uct.TransportID, error) {
	v, err := keycodec.Parse(k)
	ds := make(map[uint8]uct.TransportID)
	for _, e := range v.Entries {
		if e.Transport != keycodec.Emulated {
			ds[e.Domain] = e.Transport
		}
	}
	return ds, err
}

// WithoutDomains is the key of an owner that registered the memory with no domain.
func WithoutDomains(k Key) Key {
	return without(k, func(keycodec.Entry) bool { return true })
}

// WithoutSoftware is the key of an owner that does nothing by messages.
func WithoutSoftware(k Key) Key {
	return without(k, func(e keycodec.Entry) bool { return e.Transport == keycodec.Emulated })
}

func without(k Key, entry func(keycodec.Entry) bool) Key {
	v, err := keycodec.Parse(k)
	if err != nil {
		return k
	}
	v.Entries = slices.DeleteFunc(v.Entries, entry)
	k, _ = v.Append(nil)
	return k
}
