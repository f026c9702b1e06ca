package nic

import (
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs/protocol/protocoltest"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// addresses is one of each length.
func addresses() map[string]Address {
	worker := uct.UUID{0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	net := PortAddress{MTU: verbs.MTU1024, GID: verbs.GIDOf(netip.MustParseAddr("192.0.2.1")), LID: 0x8182, ScopeID: 0x9192939495969798}
	within := PortAddress{Fabric: FabricProcess, MTU: verbs.MTU4096, LongMTU: verbs.MTU20480, GID: verbs.GID{0: 0xfd, 2: 'g', 8: 0x71, 15: 0x78}, LID: 7, ScopeID: 0xa1a2a3a4a5a6a7a8, Goucx: true}
	return map[string]Address{
		"network": {Port: net, Seg: 8192, Worker: worker, QPN: 0x515253},
		"program": {Port: within, Worker: worker, QPN: 1},
	}
}

func (a *Address) both() uct.Address {
	return uct.Address{Device: a.AppendDevice(nil), Iface: a.AppendIface(nil)}
}

// TestAddress holds the bytes that docs/wire/rc.md names.
func TestAddress(t *testing.T) {
	want := map[string][2]string{
		"network": {
			"04000003" + "00200000" + "00000000000000000000ffffc0000201" + "9897969594939291",
			"c00102030405060708090a0b0c0d0e0f" + "535251" + "8281",
		},
		"program": {
			"04008265" + "00000000" + "fd006700000000000000000000000000" + "0000000000000000",
			"c00102030405060708090a0b0c0d0e0f" + "010000" + "0700" + "a8a7a6a5a4a3a2a1" + "7100000000000078",
		},
	}
	for name, a := range addresses() {
		t.Run(name, func(t *testing.T) {
			u := a.both()
			assert.Equal(t, want[name][0], hex.EncodeToString(u.Device[:len(u.Device)-checksumLen]))
			assert.Equal(t, want[name][1], hex.EncodeToString(u.Iface[:len(u.Iface)-checksumLen]))
			var got Address
			require.NoError(t, got.Parse(u))
			require.Equal(t, a, got)
			for k := range 2 {
				parts := [2][]byte{u.Device, u.Iface}
				whole := parts[k]
				for n := range whole {
					parts[k] = whole[:n]
					require.Error(t, got.Parse(uct.Address{Device: parts[0], Iface: parts[1]}))
				}
				for bit := range len(whole) * 8 {
					bad := append([]byte(nil), whole...)
					bad[bit/8] ^= 1 << (bit % 8)
					parts[k] = bad
					require.Error(t, got.Parse(uct.Address{Device: parts[0], Iface: parts[1]}), "bit %d", bit)
				}
			}
		})
	}
}

// TestAddressVersions: the network's address is the golden one.
func TestAddressVersions(t *testing.T) {
	a := addresses()["network"]
	iface := a.AppendIface(nil)
	protocoltest.Run(t, protocoltest.Golden{
		Format: &addressFormat, File: "address", Version: addrOffVersion, Features: addrOffFeatures,
		Bytes: a.AppendDevice(nil), Want: a, Seal: resum,
		Decode: func(b []byte) (any, error) {
			var got Address
			err := got.Parse(uct.Address{Device: b, Iface: iface})
			return got, err
		},
	})
}

// resum repairs the checksum of an address or a key.
func resum(b []byte) []byte { return AppendChecksum(b[:max(len(b)-checksumLen, 0)], 0) }

func TestAddressRefused(t *testing.T) {
	for name, spoil := range map[string]func(a *Address){
		"no queue pair":    func(a *Address) { a.QPN = 0 },
		"multicast":        func(a *Address) { a.QPN = verbs.MulticastQPN },
		"no GID":           func(a *Address) { a.Port.GID = verbs.GID{} },
		"unknown network":  func(a *Address) { a.Port.Fabric = numFabrics },
		"no MTU":           func(a *Address) { a.Port.MTU = 0 },
		"not for all":      func(a *Address) { a.Port.MTU = verbs.MTU20480 },
		"long is shorter":  func(a *Address) { a.Port.LongMTU = verbs.MTU512 },
		"no long MTU":      func(a *Address) { a.Port.LongMTU = 7 },
		"no GID in itself": func(a *Address) { a.Port.Fabric, a.Port.GID = FabricProcess, verbs.GID{0: 1} },
	} {
		a := addresses()["network"]
		spoil(&a)
		var got Address
		assert.Error(t, got.Parse(a.both()), name)
	}
}

// Interfaces of a worker, and those of workers, have names and keys of their own.
func TestAddressNames(t *testing.T) {
	a := addresses()["network"]
	seen := map[any]bool{}
	for _, change := range []func(){
		func() {}, func() { a.QPN++ }, func() { a.Port.LID++ }, func() { a.Port.GID[1]++ }, func() { a.Port.GID[15]++ }, func() { a.Worker[0]++ }, func() { a.Worker[15]++ },
	} {
		change()
		for _, v := range []any{a.Name(), a.Digest(), a.QKey()} {
			assert.False(t, seen[v])
			seen[v] = true
		}
		assert.Less(t, a.QKey(), uint32(1<<31))
	}
}

func FuzzAddress(f *testing.F) {
	for _, a := range addresses() {
		u := a.both()
		f.Add(u.Device, u.Iface)
	}
	f.Fuzz(func(t *testing.T, device, iface []byte) {
		var a Address
		if u := (uct.Address{Device: device, Iface: iface}); a.Parse(u) == nil {
			if device[addrOffFeatures] == 0 {
				assert.Equal(t, u, a.both())
			}
			var again Address
			assert.NoError(t, again.Parse(a.both()))
			assert.Equal(t, a, again)
		}
	})
}
